"""Finds the names of placeholders, such as `phone_number` of `[PHONE_NUMBER_1]`, in texts in lower case.

A mapping may have thousands of names, and one may end with another: they are sorted by their ends, so that a name is
found by bisection, and not compared with each one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

_PER_UNDERSCORE = 3
"""Separators that may stand for one underscore."""
_SEPARATOR = rf"[\s_\\-]{{0,{_PER_UNDERSCORE}}}"
_ID = r"(?:[0-9a-f]{16}|\d{1,9})"


class PlaceholderNames:
    """Finds names that an id follows. names: in any case, with underscores between their words."""

    def __init__(self, names: Iterable[str]) -> None:
        names = {name.lower() for name in names}
        self._by_reversed: dict[str, list[str]] = {}
        for name in names:
            self._by_reversed.setdefault(_letters(name)[::-1], []).append(name)
        self._sorted = sorted(self._by_reversed)
        self._parents = _parents(self._sorted)
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._longest = max((len(name) + _PER_UNDERSCORE * name.count("_") for name in names), default=0)
        last = "".join({re.escape(name[0]) for name in self._sorted if name})
        # The last character of a name, before an id.
        self._ends = re.compile(rf"[{last}](?=({_SEPARATOR}{_ID})(?![0-9a-z]|_\w))" if last else r"(?!)")

    def matches(self, lowered: str) -> Iterator[tuple[int, int]]:
        """[start, end) of names with their ids, in order, without overlaps: of two, the one that begins first."""
        found = (
            (start, match.end(1))
            for match in self._ends.finditer(lowered)
            if (start := self._start(lowered, match.end())) is not None
        )
        last = 0
        for start, end in sorted(found, key=lambda span: (span[0], -span[1])):
            if start >= last:
                last = end
                yield start, end

    def _start(self, lowered: str, end: int) -> int | None:
        """Where the longest name that ends there begins."""
        before = _letters(lowered[max(0, end - self._longest) : end])[::-1]
        index = bisect_right(self._sorted, before) - 1
        while index >= 0:
            letters = self._sorted[index]
            if before.startswith(letters):
                start = _back(lowered, end, len(letters))
                if any(self._pattern(name).fullmatch(lowered, start, end) for name in self._by_reversed[letters]):
                    return start
            index = self._parents[index]
        return None

    def _pattern(self, name: str) -> re.Pattern[str]:
        """Matches a name. A run of underscores is one quantifier: several, side by side, would be tried in every
        combination."""
        if name not in self._patterns:
            words = re.split("(_+)", name)
            self._patterns[name] = re.compile(
                "".join(
                    rf"[\s_\\-]{{0,{_PER_UNDERSCORE * len(word)}}}" if word.startswith("_") else re.escape(word)
                    for word in words
                )
            )
        return self._patterns[name]


def _parents(ordered: list[str]) -> list[int]:
    """For each of some sorted texts, the index of the longest other one that it begins with; -1: there is none."""
    parents: list[int] = []
    open_: list[int] = []
    for index, text in enumerate(ordered):
        while open_ and not text.startswith(ordered[open_[-1]]):
            open_.pop()
        parents.append(open_[-1] if open_ else -1)
        open_.append(index)
    return parents


def _letters(text: str) -> str:
    """A text without separators."""
    return "".join(text.split()).replace("_", "").replace("-", "").replace("\\", "")


def _back(text: str, end: int, chars: int) -> int:
    """Where the last `chars` characters before `end` begin, without separators."""
    while chars:
        end -= 1
        chars -= not (text[end].isspace() or text[end] in "_\\-")
    return end
