"""Numbers that a line end, wide blanks or unusual separators divide, such as `4111  1111` and `536 - 22 - 1234`.

Only such numbers are read, with the one separator that each gap stands for: `4111 1111` and `536-22-1234`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gliner_bento.privacy.recognizers.folding import Folded

_LINE_CHARS = 80
"""Maximum characters of a line that are read before or behind a line end."""
_ENOUGH_DIGITS = re.compile(r"(?:\D*\d){8}")
_GAP = r"[ \t\r\n./()\-\u00b7\u2022\u2219\u2027\u30fb\u30fc_|~>]"
_TOKEN = r"(?:[A-Za-z]{0,4}\d[A-Za-z\d]{0,33}|[A-Z]{1,4}(?![^\W_]))"
_RUN = re.compile(rf"(?<![^\W_]){_TOKEN}(?:{_GAP}{{1,48}}{_TOKEN})+")
_GAPS = re.compile(f"{_GAP}+")
_UNUSUAL_GAPS = re.compile(rf"(?<!{_GAP})(?!(?:[ \-.()]|\) | \()(?!{_GAP})){_GAP}+")
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


@dataclass(frozen=True, slots=True)
class Joined:
    """The divided numbers in a folded text, as a text in which a line end is behind each.

    before_gaps: [start, index of the last gap) of each in `read.text`.
    """

    read: Folded
    before_gaps: Sequence[tuple[int, int]]


def joined(text: str) -> Joined | None:
    """The divided numbers in a folded text, each with at most one line end in it; None if there are none."""
    parts: list[_Part] = []
    before_gaps, chars = [], 0
    for found in _RUN.finditer(text):
        for window in _windows(text, *found.span()):
            first = chars
            for start, end, char in window:
                if char and char != "\n":
                    last_gap = chars
                chars += 1 if char else end - start
            parts.extend(window)
            before_gaps.append((first, last_gap))
    whole = Folded(text, range(len(text)), range(1, len(text) + 1))
    return Joined(whole.replaced(parts), before_gaps) if parts else None


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
    if not _ENOUGH_DIGITS.match(text, start, end):
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
    for found in _UNUSUAL_GAPS.finditer(text, start, end):
        line = lines[-1]
        line.parts.append((at, found.start(), None))
        at = found.end()
        char, line_ends = _meaning(found[0])
        if char and not line_ends:
            line.parts.append((*found.span(), char))
            line.is_divided = True
            continue
        if char and line_ends == 1:
            line.line_end = (*found.span(), char)
        lines.append(_Line())
    lines[-1].parts.append((at, min(end + 2, len(text)), None))
    return lines


@lru_cache(maxsize=1000)
def _meaning(gap: str) -> tuple[str, int]:
    """The separator that a gap stands for, empty if it divides numbers; and how many line ends are in it."""
    line_ends = len(_LINE_END.findall(gap))
    separators = "".join(_QUOTED.sub("\n", gap).split())
    brackets = re.sub("[^()]", "", separators)
    others = re.sub("[()]", "", separators)
    if len(brackets) > 1 or len(others) > 1:
        return "", line_ends
    return brackets or (others if others and others in "-." else " "), line_ends


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
