"""Numbers that a line end, wide blanks or unusual separators divide, such as `4111  1111` and `536 - 22 - 1234`.

Only such numbers are read, with the one separator that each gap stands for: `4111 1111` and `536-22-1234`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gliner_bento.privacy.recognizers.folding import Folded

_LINE_CHARS = 80
"""Maximum characters of a line that are read before or behind a line end."""
_MIN_DIGITS = 8
_GAP = r"[ \t\r\n./()\-\u00b7\u2022\u2219\u2027\u30fb\u30fc_|~>]"
_TOKEN = r"(?:[A-Za-z]{0,4}\d[A-Za-z\d]{0,33}|[A-Z]{1,4}(?![^\W_]))"
_RUN = re.compile(rf"(?<![^\W_]){_TOKEN}(?:{_GAP}{{1,48}}{_TOKEN})+")
_GAPS = re.compile(f"{_GAP}+")
_USUAL = re.compile(r"[ \-.()]|\) | \(")
_LINE_END = re.compile(r"\r?\n|\r")
_QUOTED = re.compile(r"[\r\n][ \t]*>")
"""The beginning of a quoted line of a mail."""

_Part = tuple[int, int, str | None]


@dataclass(slots=True)
class _Line:
    """The part of a run of digits that is on one line. parts: see `Folded.replaced`. is_divided: it has gaps of its
    own. line_end: the gap behind it, if it may divide a number."""

    parts: list[_Part] = field(default_factory=list)
    is_divided: bool = False
    line_end: _Part | None = None


def joined(text: str) -> Folded | None:
    """The divided numbers in a folded text, each with at most one line end in it; None if there are none."""
    parts = [part for found in _RUN.finditer(text) for window in _windows(text, *found.span()) for part in window]
    return Folded(text, range(len(text)), range(1, len(text) + 1)).replaced(parts) if parts else None


def before_gaps(text: str, read: Folded, starts: Sequence[int]) -> list[int]:
    """Those of the indexes `starts` in `read`, which `joined` returned for `text`, that have a gap behind them."""
    gap_behind, has_gap = bytearray(len(read.text)), 0
    for index in range(len(read.text) - 1, -1, -1):
        gap_behind[index] = has_gap
        char = read.text[index]
        has_gap = char != "\n" and (has_gap or char != text[read.starts[index] : read.ends[index]])
    return [start for start in starts if gap_behind[start]]


def is_plausible(text: str, start: int, end: int) -> bool:
    """Whether somebody may have written [start, end) as one number, and not as columns of a table: it has letters, or
    several gaps, all equal but for a line end, and no further digits beside it."""
    if any(map(str.isalpha, text[start:end])):
        return True
    gaps = _GAPS.findall(text, start, end)
    on_a_line = {gap for gap in gaps if not _LINE_END.search(gap)}
    before = _GAPS.sub("", text[max(0, start - _LINE_CHARS) : start])
    behind = _GAPS.sub("", text[end : end + _LINE_CHARS])
    return len(gaps) > 1 and len(on_a_line) <= 1 and not before[-1:].isdigit() and not behind[:1].isdigit()


def _windows(text: str, start: int, end: int) -> Iterator[Sequence[_Part]]:
    """The parts of each text to read in a run of digits, with a line end behind them."""
    if sum(map(str.isdigit, text[start:end])) < _MIN_DIGITS:
        return
    lines = _lines(text, start, end)
    behind = (end - 1, end, "\n")
    for number, line in enumerate(lines):
        if line.is_divided:
            yield *line.parts, behind
        if line.line_end:
            first, second = line.parts, lines[number + 1].parts
            yield *_clipped(text, first, last=True), line.line_end, *_clipped(text, second, last=False), behind


def _lines(text: str, start: int, end: int) -> list[_Line]:
    """The lines of a run of digits; also what no number goes across ends one. Two more characters at both ends show
    whether a word, or an address, goes on there."""
    lines, at = [_Line()], max(0, start - 2)
    for found in _GAPS.finditer(text, start, end):
        gap, line = found[0], lines[-1]
        if _USUAL.fullmatch(gap):
            continue
        line.parts.append((at, found.start(), None))
        at = found.end()
        char, line_ends = _char(gap), len(_LINE_END.findall(gap))
        if char and not line_ends:
            line.parts.append((*found.span(), char))
            line.is_divided = True
            continue
        if char and line_ends == 1:
            line.line_end = (*found.span(), char)
        lines.append(_Line())
    lines[-1].parts.append((at, min(end + 2, len(text)), None))
    return lines


def _char(gap: str) -> str:
    """The separator that a gap stands for; empty if it divides numbers."""
    separators = "".join(_QUOTED.sub("\n", gap).split())
    brackets = re.sub("[^()]", "", separators)
    others = re.sub("[()]", "", separators)
    if len(brackets) > 1 or len(others) > 1:
        return ""
    return brackets or (others if others and others in "-." else " ")


def _clipped(text: str, parts: Sequence[_Part], *, last: bool) -> Sequence[_Part]:
    """The first or last characters of a line, without a part of a word at their other end."""
    start, end = parts[0][0], parts[-1][1]
    if end - start <= _LINE_CHARS:
        return parts
    low, high = (end - _LINE_CHARS, end) if last else (start, start + _LINE_CHARS)
    while low > start and text[low - 1 : low + 1].isalnum():
        low += 1
    while high < end and text[high - 1 : high + 1].isalnum():
        high -= 1
    return [(max(part[0], low), min(part[1], high), part[2]) for part in parts if part[1] > low and part[0] < high]
