"""Searches a text only near a sign that each match has, such as a digit: most of a text has none."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
