"""Allow lists and deny lists: values and patterns that are no finds, and such that always are.

An entry is looked for in the text before a model reads it. What is found inside an occurrence of an allowed one is no
find, and what reaches beyond it is one. Occurrences of denied ones are finds, whether they are allowed or not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from gliner_bento.privacy.known_values import Effort, KnownValues, Tokens
from gliner_bento.privacy.recognizers.base import Match, Rule
from gliner_bento.privacy.recognizers.expressions import FLAGS, Expression, Spans
from gliner_bento.privacy.spans import LabeledSpan

SENSITIVE = "sensitive"
"""The label of what a deny list has without a label."""
_RULE = Rule("", "", score=1.0, name="deny_list", title="DenyListRecognizer")


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A value, which is found as a whole word, or a pattern. label: of what a deny list finds. place: in its list."""

    text: str
    is_pattern: bool = False
    case_sensitive: bool = False
    label: str = SENSITIVE
    place: str = ""

    @property
    def expression(self) -> Expression:
        """Of a pattern."""
        return self.text, FLAGS & ~re.IGNORECASE if self.case_sensitive else FLAGS


class Listed:
    """What lists say about one text. allowed: [start, end) of the occurrences of what an allow list has, in order; none
    is inside another. denied: those of what a deny list has."""

    def __init__(self, allowed: Iterable[tuple[int, int]] = (), denied: Sequence[LabeledSpan] = ()) -> None:
        self.allowed: list[tuple[int, int]] = []
        self.denied = denied
        for start, end in sorted(allowed, key=lambda span: (span[0], -span[1])):
            if not self.allowed or end > self.allowed[-1][1]:
                self.allowed.append((start, end))

    def allows(self, start: int, end: int) -> bool:
        """Whether [start, end) is inside one occurrence of what an allow list has."""
        before = bisect_right(self.allowed, start, key=itemgetter(0))  # ends ascend, too: the last one reaches furthest
        return before > 0 and end <= self.allowed[before - 1][1]

    def applied(self, spans: Iterable[LabeledSpan]) -> list[LabeledSpan]:
        """What to replace: what a deny list has, and of what was found, all that is not allowed. May overlap."""
        return [*self.denied, *(span for span in spans if not self.allows(span.start, span.end))]

    @property
    def matches(self) -> list[Match]:
        """The denied occurrences, as matches that win over all others."""
        return [
            Match(span.start, span.end, span.label, span.score, _RULE, span.score, valid=True, is_denied=True)
            for span in self.denied
        ]

    def __add__(self, other: Listed) -> Listed:
        if not (other.allowed or other.denied):
            return self
        return Listed([*self.allowed, *other.allowed], [*self.denied, *other.denied])


NOTHING = Listed()


class Lists:
    """An allow list and a deny list; both may be empty."""

    def __init__(self, allow: Sequence[ListEntry] = (), deny: Sequence[ListEntry] = ()) -> None:
        self.allow, self.deny = allow, deny

    def __bool__(self) -> bool:
        return bool(self.allow or self.deny)

    @property
    def patterns(self) -> list[tuple[str, ListEntry]]:
        """The entries with patterns, each after the name of its list."""
        named = (("allow_list", self.allow), ("deny_list", self.deny))
        return [(name, entry) for name, entries in named for entry in entries if entry.is_pattern]

    @cached_property
    def _values(self) -> tuple[Sequence[KnownValues], Sequence[KnownValues]]:
        return _known(self.allow), _known(self.deny)

    def listed(self, text: str, of_patterns: Sequence[Spans], effort: Effort | None = None) -> Listed:
        """What the lists say about a text. of_patterns: the matches of each of `patterns`. effort: of the request so
        far. Raises LimitExceeded."""
        allowing, denying = self._values
        effort, tokens = effort or Effort(), Tokens(text)
        allowed = [(span.start, span.end) for known in allowing for span in known.spans_in(tokens, effort)]
        denied = [span for known in denying for span in known.spans_in(tokens, effort)]
        for (name, entry), spans in zip(self.patterns, of_patterns, strict=True):
            if name == "allow_list":
                allowed += [(start, end) for start, end in spans]
            else:
                denied += [_span(entry.label, start, end) for start, end in spans]
        return Listed(allowed, denied)


NO_LISTS = Lists()


def _known(entries: Iterable[ListEntry]) -> Sequence[KnownValues]:
    """The values of a list: those that are found in any case, and those that are not."""

    def of(*, case_sensitive: bool) -> Iterator[tuple[str, LabeledSpan]]:
        for entry in entries:
            if not entry.is_pattern and entry.case_sensitive is case_sensitive:
                yield entry.text, _span(entry.label)

    return [
        KnownValues(of(case_sensitive=case_sensitive), ignores_case=not case_sensitive, min_chars=1)
        for case_sensitive in (False, True)
    ]


def _span(label: str, start: int = 0, end: int = 0) -> LabeledSpan:
    return LabeledSpan(start, end, label, by_recognizer=True, score=1.0, is_denied=True)
