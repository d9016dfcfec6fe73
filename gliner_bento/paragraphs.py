"""Empty lines and the paragraphs between them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = r"(?:\r\n|[\n\x0b\x0c\x85\u2028]|\r(?!\n))"
EMPTY_LINE = re.compile(rf"{_LINE_END}[^\S\r\n\x0b\x0c\x85\u2028]*{_LINE_END}|\u2029")

_IN_LINE_ENDS = re.compile("[\n\r\x0b\x0c\x85\u2028\u2029]")


def has_empty_line(text: str, start: int, end: int) -> bool:
    """Whether an empty line is in text[start:end]. Fast for a single line, as most texts are."""
    return bool(_IN_LINE_ENDS.search(text, start, end) and EMPTY_LINE.search(text, start, end))


def paragraphs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of text[start:end] between empty lines, as offsets without the white space around each part."""
    gaps = [*EMPTY_LINE.finditer(text, start, end)] if has_empty_line(text, start, end) else []
    for first, last in zip([start, *(gap.end() for gap in gaps)], [*(gap.start() for gap in gaps), end], strict=True):
        part = text[first:last]
        if stripped := part.strip():
            offset = first + len(part) - len(part.lstrip())
            yield offset, offset + len(stripped)
