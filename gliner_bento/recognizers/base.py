"""A recognizer: a rule with a pattern, a check, and words that may be near a match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

CONTEXT_SCORE = 0.35
"""Added to the score of a match with a word near it, as in Presidio."""

MAX_MATCH_CHARS = 2048
PIECE_CHARS = 8192
"""Characters that one call of `re` searches: other threads cannot run meanwhile."""

BEFORE, AFTER = r"(?<![^\W_])(?<!\d[.\-])", r"(?![^\W_])(?![.\-]\d)"
"""Where a number may begin and end: not within a word, nor within a longer number."""

_START = re.compile(r"(?<![^\W_])(?=[A-Za-z]{0,6}[ \-]?\d)[A-Za-z\d]|[+(](?=\d)")

Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Match:
    """`text[start:end]` is an entity of the type `entity`, by Presidio's name.

    base: the score without `word`, the word near it. valid: whether its check digits are right; None: it has none.
    """

    start: int
    end: int
    entity: str
    score: float
    rule: Rule
    base: float
    word: str = ""
    valid: bool | None = None


@dataclass(frozen=True)
class Rule:
    """One form of an entity.

    pattern: of the whole, between `BEFORE` and `AFTER` unless it says itself where it ends. score: of a match without a
    word near it; 0: there must be one, right before it. words: separated by commas; with one of them near, a checked
    match has the score 1, another one `CONTEXT_SCORE` more. check: of what the pattern matches: False is no match.
    span: where the match begins and ends within what the pattern matches; None is no match.
    numeric: whether it begins as a number does (`starts_of`), and is tried only there. title: of a caller's own
    recognizer.
    """

    entity: str
    pattern: str
    score: float = 0.0
    words: str = ""
    check: Check | None = None
    name: str = ""
    flags: int = re.ASCII
    span: Callable[[re.Match[str]], tuple[int, int] | None] = field(default=lambda match: match.span(), repr=False)
    numeric: bool = True
    title: str = ""

    @property
    def recognizer(self) -> str:
        """Its title, or the name of Presidio's class."""
        if self.title:
            return self.title
        name = re.sub("_(ADDRESS|CODE|NUMBER)$", "", self.entity)
        return f"{name.title().replace('_', '')}Recognizer"

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern, self.flags)

    def matches(self, text: str, starts: Sequence[int]) -> Iterator[Match]:
        """The matches in a folded text, in order, with the rule's score. starts: where its numbers begin."""
        end = 0
        for start in starts if self.numeric else ():
            if start >= end and (found := self.regex.match(text, start)) and (match := self.of(found)):
                yield match
                end = match.end
        for piece in range(0, 0 if self.numeric else len(text), PIECE_CHARS):
            yield from self._piece(text, max(piece, end), piece + PIECE_CHARS)

    def _piece(self, text: str, start: int, end: int) -> Iterator[Match]:
        """The matches that begin in a piece."""
        while (found := self.regex.search(text, start, end + MAX_MATCH_CHARS)) and found.start() < end:
            match = self.of(found)
            if match:
                yield match
            start = max(match.end if match else 0, found.start() + 1)

    def of(self, found: re.Match[str]) -> Match | None:
        """The match of what the pattern has found, unless its check fails."""
        span = self.span(found)
        if not span or (self.check and not self.check(found.string[slice(*span)])):
            return None
        return Match(
            *span, self.entity, self.score, self, self.score, valid=True if self.check or self.score == 1 else None
        )


def starts_of(text: str) -> list[int]:
    """Where a number may begin, or letters that are a part of it."""
    return [found.start() for found in _START.finditer(text)]


def library(name: str, **options: bool) -> Check:
    """The check of a module of python-stdnum, imported when it is first used."""

    def check(text: str) -> bool:
        module: Any = import_module(f"stdnum.{name}")
        return any(module.is_valid(re.sub(f"[ ./{dash}]", "", text), **options) for dash in ("", "-"))

    return check


def number(entity: str, pattern: str, check: str | Check = "", score: float = 0.0, words: str = "") -> Rule:
    """A rule with `BEFORE` and `AFTER` around its pattern. check: also a module of python-stdnum."""
    checked = library(check) if isinstance(check, str) else check
    return Rule(entity, f"{BEFORE}(?:{pattern}){AFTER}", score, words, checked if check else None)
