"""A recognizer: a rule with a pattern, a check, and words that may be near a match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

CONTEXT_SCORE, MIN_CONTEXT_SCORE = 0.35, 0.4
"""Added to the score of a match with a word near it, and the minimum of the sum, as in Presidio."""

MAX_MATCH_CHARS = 2048
"""Maximum length of a match of a rule that is not `numeric`."""
PIECE_CHARS = 8192
"""Characters that one call of `re` searches. They are few, because other threads cannot run meanwhile."""

BEFORE, AFTER = r"(?<![^\W_])(?<!\d[.\-])", r"(?![^\W_])(?![.\-]\d)"
"""Where a number may begin and end: not within a word, nor within a longer number."""

_START = re.compile(r"(?<![^\W_])(?=[A-Za-z]{0,6}[ \-]?\d)[A-Za-z\d]|[+(](?=\d)")
_IDENTIFIER = re.compile(
    r"-[\dA-Fa-f]{4}-[\dA-Fa-f]{4}-[\dA-Fa-f]{4}-[\dA-Fa-f]{12}|arn(?::[^\s:]{0,64}){3}:\d{12}", re.ASCII
)
"""A UUID without its first 8 characters; or the name of an AWS resource, as far as the account number."""
_FRACTION = re.compile(r"(?:^|(?<=[\s(\[=,;:+\-]))\.(?=\d)")
"""The point of a decimal such as .25."""

Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Match:
    """`text[start:end]` is an entity of the type `entity`, by Presidio's name.

    word: the word near the match; empty if there is none. base: the score without the word. valid: True if a check or
    the form alone proves the match; None if unknown. distance: characters between the word and the match, without
    those that say no more, such as "number:".
    """

    start: int
    end: int
    entity: str
    score: float
    rule: Rule
    base: float
    word: str = ""
    valid: bool | None = None
    distance: int = 0


@dataclass(frozen=True)
class Rule:
    """One form of an entity.

    pattern: includes the conditions on the characters before and after a match, such as `BEFORE` and `AFTER`.
    score: of a match without a word near it; 0: matches need a word right before them. words: separated by commas. With
    one of them near, a match that is `valid` has the score 1, any other match `CONTEXT_SCORE` more, but at
    least `MIN_CONTEXT_SCORE` and at most 1.
    check: returns whether the matched text is a match. name: of the pattern, if the entity has several patterns that a
    request can choose from, such as IPv4. span: returns where in the pattern's match the entity begins and ends, or
    None. numeric: whether all matches begin at a start of a number (`starts_of`), and only these are tried.
    title: name of a recognizer that a request brings with it. needs_word: whether matches without a word near them are
    none, not even with a low score.
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
    needs_word: bool = False

    @property
    def recognizer(self) -> str:
        """The title, or the name of Presidio's class."""
        if self.title:
            return self.title
        name = re.sub("_(ADDRESS|CODE|NUMBER)$", "", self.entity)
        return f"{name.title().replace('_', '')}Recognizer"

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern, self.flags)

    def matches(self, text: str, starts: Sequence[int]) -> Iterator[Match]:
        """The matches in a folded text, in order, with the rule's score. starts: where numbers begin in the text."""
        if not self.numeric:
            for start in range(0, len(text), PIECE_CHARS):
                yield from self._in_piece(text, start, start + PIECE_CHARS)
            return
        end, match_at = 0, self.regex.match
        for start in starts:
            if start >= end and (found := match_at(text, start)) and (match := self.of(found)):
                yield match
                end = match.end

    def _in_piece(self, text: str, start: int, end: int) -> Iterator[Match]:
        """The matches that begin in a piece of the text."""
        while (found := self.regex.search(text, start, end + MAX_MATCH_CHARS)) and found.start() < end:
            match = self.of(found)
            if match:
                yield match
            start = max(match.end if match else 0, found.start() + 1)

    def of(self, found: re.Match[str]) -> Match | None:
        """The `Match` of a match of the pattern; None if `span` or `check` refuses it."""
        span = self.span(found)
        if not span or (self.check and not self.check(found.string[slice(*span)])):
            return None
        valid = True if self.check or self.score == 1 else None
        return Match(*span, self.entity, self.score, rule=self, base=self.score, valid=valid)


def starts_of(text: str) -> list[int]:
    """Indexes where a number may begin, or the letters in front of its digits: not within a UUID or the name of an AWS
    resource, nor right behind a decimal point."""
    starts = [found.start() for found in _START.finditer(text)]
    others = {found.end() for found in _FRACTION.finditer(text)}
    for found in _IDENTIFIER.finditer(text):
        others.update(range(found.start() - 8, found.end()))
    return [start for start in starts if start not in others] if others else starts


def stdnum_check(name: str, **options: bool) -> Check:
    """The check of a module of python-stdnum, which is imported when it is first used."""

    def check(text: str) -> bool:
        module: Any = import_module(f"stdnum.{name}")
        with_dashes = re.sub("[ ./]", "", text)
        without_dashes = with_dashes.replace("-", "")
        return any(module.is_valid(cleaned, **options) for cleaned in (with_dashes, without_dashes))

    return check


def number(entity: str, pattern: str, check: str | Check = "", score: float = 0.0, words: str = "") -> Rule:
    """A rule with `BEFORE` and `AFTER` around its pattern. check: a function, a module of python-stdnum, or none."""
    checked = stdnum_check(check) if isinstance(check, str) else check
    return Rule(entity, f"{BEFORE}(?:{pattern}){AFTER}", score, words, checked if check else None)
