"""Regular expressions of callers, in bounded time: recognizers that a request brings with it, and allow lists.

The package regex matches with a time limit and lets other threads run meanwhile.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import regex

from gliner_bento.recognizers.base import CONTEXT_SCORE, MIN_CONTEXT_SCORE, Match, Rule

TIMEOUT_S = 0.5
MAX_CHARS = 10_000
"""Limit for all expressions of a field together, because compiling takes time, too."""

FLAGS = re.IGNORECASE | re.MULTILINE | re.DOTALL
_KNOWN_FLAGS = FLAGS | re.VERBOSE | re.ASCII | re.UNICODE
_MAX_MATCHES = 100_000
_NEAR_CHARS = 60


class ExpressionError(ValueError):
    """An expression is invalid, takes too long or has too many matches; the message says which."""


class Expressions:
    """The expressions of one field. Their searches must end within `TIMEOUT_S` of the start of the first search."""

    def __init__(self) -> None:
        self._chars = 0
        self._deadline_s = 0.0

    def compiled(self, expression: str, flags: int | None = None) -> Any:
        """Compile an expression; flags: `FLAGS` by default. Raises `ExpressionError`."""
        self._chars += len(expression)
        if self._chars > MAX_CHARS:
            raise ExpressionError(f"the patterns have more than {MAX_CHARS} characters in total")
        try:
            return regex.compile(expression, (FLAGS if flags is None else flags) & _KNOWN_FLAGS)
        except (regex.error, ValueError, OverflowError, RecursionError):
            raise ExpressionError("not a regular expression") from None

    def matches(self, compiled: Any, text: str) -> Iterator[tuple[int, int]]:
        """[start, end) of each match that is not empty. Raises `ExpressionError`."""
        with self._timed() as left_s:
            for number, found in enumerate(compiled.finditer(text, timeout=left_s, concurrent=True)):
                if number > _MAX_MATCHES:
                    raise ExpressionError(f"the pattern has more than {_MAX_MATCHES:,} matches")
                if time.monotonic() > self._deadline_s:
                    raise TimeoutError
                if found.end() > found.start():
                    yield found.span()

    def is_in(self, compiled: Any, text: str) -> bool:
        """Whether the expression matches anywhere. Raises `ExpressionError`."""
        with self._timed() as left_s:
            return compiled.search(text, timeout=left_s, concurrent=True) is not None

    @contextmanager
    def _timed(self) -> Iterator[float]:
        """Yields the seconds until the deadline. Turns TimeoutError into `ExpressionError`."""
        self._deadline_s = self._deadline_s or time.monotonic() + TIMEOUT_S
        try:
            yield max(0.001, self._deadline_s - time.monotonic())
        except TimeoutError:
            raise ExpressionError("the pattern takes too long") from None


@dataclass(frozen=True, slots=True)
class AdHocRecognizer:
    """A recognizer of a request. rules: each with its compiled expression. words: in lower case; see `Rule`."""

    rules: Sequence[tuple[Rule, Any]]
    words: Sequence[str] = ()

    def matches(self, expressions: Expressions, text: str, context: str) -> Iterator[Match]:
        """The matches in a text. context: in lower case; counts as near each match. Raises `ExpressionError`."""
        for rule, compiled in self.rules:
            for start, end in expressions.matches(compiled, text):
                near = f"{text[max(0, start - _NEAR_CHARS) : start].lower()} {context}"
                word = next((word for word in self.words if word in near), "")
                score = min(1.0, max(MIN_CONTEXT_SCORE, rule.score + CONTEXT_SCORE)) if word else rule.score
                yield Match(start, end, rule.entity, score, rule, rule.score, word)


def deny_list(texts: Sequence[str]) -> str:
    """The expression that matches each of `texts` where it is a whole word."""
    return rf"(?:^|(?<=\W))(?:{'|'.join(map(regex.escape, texts))})(?:(?=\W)|$)"
