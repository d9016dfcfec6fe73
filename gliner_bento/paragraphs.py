"""Empty lines and the paragraphs between them, and the rows of a table."""

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


_SEPARATORS = ",;\t|"
_MIN_SEPARATORS = 2
_MAX_ROW_CHARS = 1000


def rows(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of text[start:end] on each row, if it begins in a cell of one row and ends in a cell of the next, as in
    CSV; else all of it."""
    line_end = text.find("\n", start, end)
    separator = text[start - 1 : start]
    if line_end < 0 or not separator or separator not in _SEPARATORS or text[end : end + 1] != separator:
        yield start, end
        return
    first = text[max(0, line_end - _MAX_ROW_CHARS) : line_end].rpartition("\n")[2]
    second = text[line_end + 1 : line_end + _MAX_ROW_CHARS].partition("\n")[0]
    if end <= line_end + len(second) + 1 and first.count(separator) == second.count(separator) >= _MIN_SEPARATORS:
        yield start, line_end - text.startswith("\r", line_end - 1)
        yield line_end + 1, end
    else:
        yield start, end
