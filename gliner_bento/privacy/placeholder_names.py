"""Finds the names of placeholders, such as `phone_number` of `[PHONE_NUMBER_1]`, in texts, in any case.

A mapping may have thousands of names, and one may end with another: they are sorted by their ends, so that a name is
found by bisection, and not compared with each one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

_PER_UNDERSCORE = 3
"""Separators that may stand for one underscore."""
_SEPARATOR = rf"[\s_\\-]{{0,{_PER_UNDERSCORE}}}"
_ID = r"(?:[0-9a-f]{16}|\d{1,9})"
_ANY_ID = re.compile(r"\d|[a-f]{16}")
"""Whether a text has an id at all: most words between placeholders have none."""
ESCAPED_CHARS = 14
"""Maximum length of a match of `_ESCAPED`."""
MAX_BACKSLASHES = 3
"""Maximum number of backslashes at the beginning of a match of `_ESCAPED`."""
_ESCAPED = re.compile(
    rf"\\{{0,{MAX_BACKSLASHES - 1}}}"
    r"(\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[0-9a-fA-F]{4}))"
)
"""A character in JSON, also in JSON that is a string of JSON."""


class PlaceholderNames:
    """Finds names that an id follows. names: in any case, with underscores between their words."""

    def __init__(self, names: Iterable[str]) -> None:
        names = {folded(name) for name in names}
        self._by_reversed: dict[str, list[str]] = {}
        for name in names:
            self._by_reversed.setdefault(_letters(name)[::-1], []).append(name)
        self._sorted = sorted(self._by_reversed)
        self._parents = _parents(self._sorted)
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._longest = max((len(name) + _PER_UNDERSCORE * name.count("_") for name in names), default=0)
        last = "".join({re.escape(name[0]) for name in self._sorted if name})
        # The last character of a name, before an id.
        self._ends = re.compile(rf"[{last}](?=({_SEPARATOR}{_ID})(?![0-9a-z]|_{{1,20}}[^\W_]))" if last else r"(?!)")

    def all_matches(self, text: str) -> Iterator[tuple[int, int]]:
        """[start, end) of all names with their ids, also of those that another one ends with."""
        read, places = unescaped(text)
        lowered = folded(read)
        if not _ANY_ID.search(lowered):
            return
        for match in self._ends.finditer(lowered):
            for start in self._starts(lowered, match.end()):
                yield places[start], places[match.end(1)]

    def _starts(self, lowered: str, end: int) -> Iterator[int]:
        """Where the names that end there begin, the longest first."""
        before = _letters(lowered[max(0, end - self._longest) : end])[::-1]
        index = bisect_right(self._sorted, before) - 1
        while index >= 0:
            letters = self._sorted[index]
            if before.startswith(letters):
                start = _back(lowered, end, len(letters))
                if any(self._pattern(name).fullmatch(lowered, start, end) for name in self._by_reversed[letters]):
                    yield start
            index = self._parents[index]

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


class _Folded(dict[int, int]):
    """The code of each character in lower case; those that would be several characters stay."""

    def __missing__(self, code: int) -> int:
        lower = chr(code).casefold()
        self[code] = ord(lower) if len(lower) == 1 else code
        return self[code]


_FOLDED = _Folded()


def folded(text: str) -> str:
    """A text in lower case, character by character: in `str.lower`, they depend on what is around them."""
    return text.lower() if text.isascii() else text.translate(_FOLDED)


def unescaped(text: str) -> tuple[str, Sequence[int]]:
    """A text with letters in place of their escapes in JSON, such as `\\u00e9`; and where each of its characters, and
    its end, is in the text as it was. Escapes of what is an ASCII letter in lower case stay: names have none."""
    if "\\u" not in text:
        return text, range(len(text) + 1)
    pieces: list[str] = []
    places: list[int] = []
    end = 0
    for match in _ESCAPED.finditer(text):
        char = json.loads(f'"{match[1]}"')
        if not folded(char).isascii():
            pieces += text[end : match.start()], char
            places += *range(end, match.start()), match.start()
            end = match.end()
    return "".join([*pieces, text[end:]]), [*places, *range(end, len(text) + 1)]


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
