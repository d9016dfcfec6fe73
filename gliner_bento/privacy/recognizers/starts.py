"""Where numbers may begin in a text, so that the rules are tried only there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import filterfalse

from gliner_bento.privacy.recognizers.base import Rule

_GROUP_SIZE = 8
_FLAGS = re.ASCII

_DIGITS = re.compile(r"\d(?:\D{0,32}\d{1,64}){0,64}")
"""Digits, and others near them: a part of a text in which numbers may be."""
_BEFORE_DIGIT = 7  # characters of a number's start before its first digit
_START = re.compile(
    r"(?<![^\W_])(?:(?<=\d[.\-])()|)"  # the group: behind a digit and a separator
    r"(?:(?<!^\.)(?<![\s(\[=,;:+\-]\.)\d|[A-Za-z](?=[A-Za-z]{0,5}[ .\-]?\d))|[+(](?=\d)",  # no fraction, such as .25
    _FLAGS,  # languages that write no spaces have their characters right before a number
)
_UUID = re.compile(r"-[\dA-Fa-f]{4}-[\dA-Fa-f]{4}-[\dA-Fa-f]{4}-[\dA-Fa-f]{12}", re.ASCII)
"""A UUID without its first 8 characters."""
_RESOURCE = re.compile(r"arn(?::[^\s:]{0,64}){3}:\d{12}", re.ASCII)
"""The name of an AWS resource, as far as the account number."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Some rules, and a regular expression that matches where one of them does."""

    rules: Sequence[Rule]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """See the class."""
        patterns, groups = [], 0
        for rule in self.rules:
            patterns.append(_renumbered(rule.pattern, groups))
            groups += rule.regex.groups
        return re.compile("|".join(patterns), _FLAGS)

    def tried(self, text: str, starts: Iterable[int]) -> Sequence[int]:
        """Those of the indexes at which a rule matches."""
        match_at = self.regex.match
        return [start for start in starts if match_at(text, start)]


def _renumbered(pattern: str, groups: int) -> str:
    """The pattern behind others that have so many groups: references such as `\\1` count these, too."""
    return re.sub(r"\\([1-9])", lambda found: f"\\{int(found[1]) + groups}", pattern)


class Groups:
    """Groups of rules that find numbers at the same starts. One regular expression of a group is tried before its
    rules, and one of all `outer` rules before that: most numbers in a text have the form of few rules or none."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        numbers = [rule for rule in rules if rule.score and not rule.sign and rule.flags == _FLAGS]
        outer = [rule for rule in numbers if rule.is_outer]
        outer.sort(key=lambda rule: rule.needs_word)  # together, because most texts have none of their words
        self.outer = _Group(outer)
        groups = [_Group(outer[start : start + _GROUP_SIZE]) for start in range(0, len(outer), _GROUP_SIZE)]
        groups.append(_Group([rule for rule in numbers if not rule.is_outer]))
        self.of_rule = {id(rule): group for group in groups for rule in group.rules}


class Starts:
    """Indexes where a number may begin in a folded text, or the letters in front of its digits, in order: not within a
    UUID or the name of an AWS resource, nor right behind a decimal point.

    before_gaps: the parts of the text to read, each [start, index of its last gap); all of it by default.
    every: all of them. outer: without those behind a digit and a point or dash, as `BEFORE` requires.
    """

    def __init__(self, text: str, groups: Groups, before_gaps: Iterable[tuple[int, int]] | None = None) -> None:
        self._text = text
        self._groups = groups
        self._of_group: dict[_Group, Sequence[int]] = {}
        self.every: Sequence[int]
        self.outer: Sequence[int]
        parts = _parts(text) if before_gaps is None else ((start, gap, gap + 2) for start, gap in before_gaps)
        self.every, self.outer = _starts(text, parts)

    def leave_out(self, others: Callable[[int], object]) -> None:
        """Leave out the starts for which a function returns a true value."""
        self.every, self.outer = [*filterfalse(others, self.every)], [*filterfalse(others, self.outer)]

    def of(self, rule: Rule) -> Sequence[int]:
        """Those at which matches of a rule may begin."""
        group = self._groups.of_rule.get(id(rule))
        if not group:
            return self.outer if rule.is_outer else self.every
        return self._tried(group, self._tried(self._groups.outer, self.outer) if rule.is_outer else self.every)

    def _tried(self, group: _Group, starts: Sequence[int]) -> Sequence[int]:
        if group not in self._of_group:
            self._of_group[group] = group.tried(self._text, starts)
        return self._of_group[group]


def _parts(text: str) -> Iterator[tuple[int, int, int]]:
    for digits in _DIGITS.finditer(text):
        yield max(0, digits.start() - _BEFORE_DIGIT), digits.end(), digits.end()


def _starts(text: str, parts: Iterable[tuple[int, int, int]]) -> tuple[Sequence[int], Sequence[int]]:
    """See `Starts`. parts: [start, end) of each, and as far as where it is read to see whether digits follow."""
    every, outer, last = [], [], -1
    for part_start, part_end, read_end in parts:
        for found in _START.finditer(text, part_start, read_end):
            start = found.start()
            if last < start < part_end:  # parts may overlap
                last = start
                every.append(start)
                if not found.lastindex:
                    outer.append(start)
    others = _identifiers(text) if every else ()
    if not others:
        return every, outer
    return [start for start in every if start not in others], [start for start in outer if start not in others]


def _identifiers(text: str) -> set[int]:
    """The indexes of the characters of UUIDs and names of AWS resources."""
    indexes: set[int] = set()
    for regex in (_UUID, _RESOURCE):
        for found in regex.finditer(text):
            indexes.update(range(found.start() - 8, found.end()))
    return indexes
