"""A recognizer: a rule with a pattern, a check, and words that may be near a match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import NamedTuple

CONTEXT_SCORE, MIN_CONTEXT_SCORE = 0.35, 0.4
"""Added to the score of a match with a word near it, and the minimum of the sum, as in Presidio."""

BEFORE, AFTER = r"(?<![^\W_])(?<!\d[.\-])", r"(?![^\W_])(?![.\-]\d)"
"""Where a number may begin and end: not within a word, nor within a longer number."""

_SEPARATORS = str.maketrans("", "", " ./")

Check = Callable[[str], bool]


class Match(NamedTuple):
    """`text[start:end]` is an entity of the type `entity`, by Presidio's name.

    word: the word near the match; empty if there is none. base: the score without the word. valid: True if a check or
    the form alone proves the match; None if unknown. distance: characters between the word and the match, without
    those that say no more, such as "number:". is_denied: it is of a deny list; `entity` is its label in the answer.
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
    is_denied: bool = False


@dataclass(frozen=True)
class Rule:
    """One form of an entity.

    pattern: includes the conditions on the characters before and after a match, such as `BEFORE` and `AFTER`.
    score: of a match without a word near it; 0: matches need a word right before them. words: separated by commas. With
    one of them near, a match that is `valid` has the score 1, any other match `CONTEXT_SCORE` more, but at
    least `MIN_CONTEXT_SCORE` and at most 1.
    check: returns whether the matched text is a match. name: of the pattern, if the entity has several patterns that a
    request can choose from, such as IPv4. span: returns where in the pattern's match the entity begins and ends, or
    None. sign, reach: a pattern that is in each match, at most `reach` characters behind its start; only there is the
    text searched. before: the characters that may be between the start and the sign, if a match begins behind another
    one. Without a sign, all matches begin at one of the `Starts` of numbers. is_outer: whether no match has a digit and
    a point or dash before it. title: name of a recognizer that a request brings with it. needs_word: whether matches
    without a word near them are none, not even with a low score. max_chars: maximum length of a match of a rule with a
    sign, behind the sign.
    """

    entity: str
    pattern: str
    score: float = 0.0
    words: str = ""
    check: Check | None = None
    name: str = ""
    flags: int = re.ASCII
    span: Callable[[re.Match[str]], tuple[int, int] | None] = field(default=lambda match: match.span(), repr=False)
    sign: str = ""
    reach: int = 0
    before: str = ""
    is_outer: bool = False
    title: str = ""
    needs_word: bool = False
    max_chars: int = 2048

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

    @cached_property
    def _sign_regex(self) -> re.Pattern[str]:
        return re.compile(self.sign, self.flags)

    @cached_property
    def _within_reach(self) -> re.Pattern[str]:
        """Matches up to `reach` characters and a match of the pattern. The first group ends where that one begins."""
        reach = 0 if self.before else self.reach
        return re.compile(rf"((?s:.{{0,{reach}}}?))(?:{self.pattern})", self.flags)

    def matches(self, text: str, starts: Sequence[int]) -> Iterator[Match]:
        """The matches in a folded text, in order, with the rule's score. starts: where they may begin, for a rule
        without a sign."""
        if self.sign:
            yield from self._beside_signs(text)
            return
        end, match_at = 0, self.regex.match
        for start in starts:
            if start >= end and (found := match_at(text, start)) and (match := self.of(found)):
                yield match
                end = match.end

    def _beside_signs(self, text: str) -> Iterator[Match]:
        """The matches that begin at a sign or shortly before one."""
        start = 0
        for sign in self._sign_regex.finditer(text):
            start, last = max(start, sign.start() - self.reach), sign.start() + self.max_chars
            if self.before:
                start += len(text[start : sign.start()].rstrip(self.before))
            while start <= sign.start() and (near := self._within_reach.match(text, start, last)):
                found = self.regex.match(text, near.end(1), last)
                match = self.of(found) if found else None
                start = max(match.end if match else 0, near.end(1) + 1)
                if match:
                    yield match
            start = max(start, sign.start() + 1)

    def of(self, found: re.Match[str]) -> Match | None:
        """The `Match` of a match of the pattern; None if `span` or `check` refuses it."""
        span = self.span(found)
        if not span or (self.check and not self.check(found.string[slice(*span)])):
            return None
        valid = True if self.check or self.score == 1 else None
        return Match(*span, self.entity, self.score, rule=self, base=self.score, valid=valid)


def stdnum_check(name: str, **options: bool) -> Check:
    """The check of a module of python-stdnum, which is imported when it is first used."""

    @cache
    def is_valid() -> Callable[..., bool]:
        return import_module(f"stdnum.{name}").is_valid  # type: ignore[no-any-return]

    def check(text: str) -> bool:
        with_dashes = text.translate(_SEPARATORS)
        without_dashes = with_dashes.replace("-", "")
        spellings = (with_dashes,) if with_dashes == without_dashes else (with_dashes, without_dashes)
        return any(is_valid()(spelling, **options) for spelling in spellings)

    return check


def number(entity: str, pattern: str, check: str | Check = "", score: float = 0.0, words: str = "") -> Rule:
    """A rule with `BEFORE` and `AFTER` around its pattern. check: a function, a module of python-stdnum, or none."""
    checked = stdnum_check(check) if isinstance(check, str) else check
    return Rule(entity, f"{BEFORE}(?:{pattern}){AFTER}", score, words, checked if check else None, is_outer=True)
