"""Regular expressions of callers, in bounded time and memory: recognizers that a request brings, and allow lists.

They run in another process (`expression_process.py`), because the package regex has no limit on memory, and its time
limit does not hold everywhere: `(?R)` takes hundreds of megabytes, and `a{2000000000}` never ends.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gliner_bento.helper_process import HelperProcess
from gliner_bento.privacy.recognizers.base import CONTEXT_SCORE, MIN_CONTEXT_SCORE, Match, Rule

TIMEOUT_S = 0.5
"""Processor time of all searches of a job."""
MAX_CPU_S = 1.5
"""Processor time of a job, in which its expressions are also compiled. Beyond it, the system ends the process."""
MAX_MEMORY_BYTES = 256 * 2**20
"""Address space of the process. It takes 30 MB of it when it starts."""
MAX_CHARS = 10_000
"""Limit for all expressions of a field together, because compiling takes time, too."""
MAX_MATCHES = 100_000
"""Limit for all matches of a job."""

FLAGS = re.IGNORECASE | re.MULTILINE | re.DOTALL
_NEAR_CHARS = 60
_RECURSION = re.compile(r"\\.|(\(\?(?:R|\d+|&\w+|P>\w+)\))", re.DOTALL)
_PROGRAM = "gliner_bento.privacy.recognizers.expression_process"

Expression = tuple[str, int]
"""A regular expression, and its flags, as in Python's re."""
Spans = list[tuple[int, int]]
"""[start, end) of matches that are not empty, in order."""


class ExpressionError(ValueError):
    """An expression is invalid, takes too long, needs too much memory or has too many matches; the message says which.

    expression: the index of the expression; None if it is not known.
    """

    def __init__(self, message: str, expression: int | None = None) -> None:
        super().__init__(message)
        self.expression = expression


def check(expressions: Sequence[Expression]) -> None:
    """Raise `ExpressionError` for expressions that are too long, or recursive."""
    chars = 0
    for index, (expression, _) in enumerate(expressions):
        chars += len(expression)
        if chars > MAX_CHARS:
            raise ExpressionError(f"the patterns have more than {MAX_CHARS} characters in total", index)
        if recursion := next(filter(None, (found[1] for found in _RECURSION.finditer(expression))), None):
            raise ExpressionError(f"recursion is not supported: {recursion[:50]}", index)


class ExpressionProcess(HelperProcess):
    """The process that runs expressions. It starts with the first job, and again after a job that it did not survive.
    For one thread at a time."""

    def __init__(self) -> None:
        super().__init__(_PROGRAM)

    def spans(
        self, expressions: Sequence[Expression], texts: Sequence[str], *, first_only: bool = False
    ) -> list[list[Spans]]:
        """For each text, the matches of each expression. first_only: only the first match, which may be empty.

        Blocks. Raises `ExpressionError`, and OSError if the process does not start.
        """
        job = as_line({"expressions": expressions, "texts": len(texts), "first_only": first_only})
        try:
            self.close_if_ended()
            answer = self._answer(job)
            if answer is None and self._process and self._process.wait() == 0:  # it was worn out by the last job
                self.close()
                answer = self._answer(job)
            self._check(answer)
            found = []
            for text in texts:
                answer = self._answer(as_line(text))
                self._check(answer)
                found.append([[*pairwise(places)][::2] for places in answer])
        except ExpressionError:
            raise
        except BaseException:
            self.close()
            raise
        return found

    def _answer(self, line: bytes) -> Any:
        """The process's answer to a line; None if it has ended."""
        process = self.started()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            return None
        return json.loads(answer) if answer.endswith(b"\n") else None

    def _check(self, answer: Any) -> None:
        """Raise `ExpressionError` for an error, or for no answer."""
        if answer is None:
            takes_long = self._process is not None and self._process.wait() == -signal.SIGPROF
            self.close()
            raise ExpressionError("the pattern takes too long" if takes_long else "the pattern needs too much memory")
        if isinstance(answer, dict):
            if answer["ends"]:
                self.close()
            raise ExpressionError(answer["error"], answer["expression"])


def as_line(value: Any) -> bytes:
    """A line of JSON. It may have halves of surrogate pairs."""
    return json.dumps(value).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class AdHocRule:
    """A pattern of a recognizer that a request brings. words: in lower case; see `Rule`."""

    rule: Rule
    expression: Expression
    words: Sequence[str] = ()

    def matches(self, spans: Spans, text: str, context: str) -> Iterator[Match]:
        """The matches in a text. spans: of the expression. context: in lower case; counts as near each match."""
        rule = self.rule
        for start, end in spans:
            near = f"{text[max(0, start - _NEAR_CHARS) : start].lower()} {context}"
            word = next((word for word in self.words if word in near), "")
            score = min(1.0, max(MIN_CONTEXT_SCORE, rule.score + CONTEXT_SCORE)) if word else rule.score
            yield Match(start, end, rule.entity, score, rule, rule.score, word)


def deny_list(texts: Sequence[str]) -> str:
    """The expression that matches each of `texts` where it is a whole word."""
    return rf"(?:^|(?<=\W))(?:{'|'.join(map(re.escape, texts))})(?:(?=\W)|$)"
