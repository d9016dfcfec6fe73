"""Searches a text only if it has, and only near, what each match has, such as a digit or a word: most of a text has
none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

_WORD = re.compile("[a-z0-9]+")
_COMMON_SIGNS = str.maketrans("", "", "\u00a0‘’“”„«»–—…•€£§°")


class Clues:
    """What a text has. A pattern is only searched for where it can match.

    In a text with letters that are not ASCII, everything may be: `ſ` is an `s` in another case.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_plain = text.isascii() or text.translate(_COMMON_SIGNS).isascii()
        self._lowered = text.lower() if self.is_plain else ""
        self._words = frozenset(_WORD.findall(self._lowered))

    def has_word(self, words: Set[str]) -> bool:
        """Whether one of the words, in lower case, may be in the text: between characters that are no letters or
        digits."""
        return not self.is_plain or not words.isdisjoint(self._words)

    def has_part(self, parts: Iterable[str]) -> bool:
        """Whether one of the texts, in lower case, may be in the text."""
        return not self.is_plain or any(map(self._lowered.__contains__, parts))


_FIELD_SIGN = re.compile(r"[:：=\t>は]")


def has_fields(text: str) -> bool:
    """Whether a text has a sign that is between a field and its value: most sentences have none."""
    return _FIELD_SIGN.search(text) is not None


def matches_near(
    pattern: re.Pattern[str], text: str, sign: re.Pattern[str], *, before: int, behind: int
) -> Iterator[re.Match[str]]:
    """The matches of a pattern in a text that begin at most `before` characters before a sign and end at most `behind`
    characters after one, in order."""
    begin, end = 0, -1
    for found in sign.finditer(text):
        if found.start() - before > end:
            if end >= 0:
                yield from pattern.finditer(text, begin, end)
            begin = max(0, end, found.start() - before)
        end = min(len(text), found.end() + behind)
    if end >= 0:
        yield from pattern.finditer(text, begin, end)
