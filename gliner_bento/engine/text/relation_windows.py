"""Divides a window into the parts in which relations are scored: a few sentences, or a row of a table. Pure.

    window ──▶ paragraphs, rows ──▶ sentences ──▶ parts:   ├──────────┤
                                                                ├──────────┤

No part crosses the end of a paragraph, or a line break between rows of a table or items of a list. Lines are such rows
if they have the same marks (separators, bullets), or two entities each. A line break that wraps a line is white space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil

import numpy as np
import regex
from numpy.typing import NDArray

from gliner_bento.engine.text.sentences import sentence_ends
from gliner_bento.engine.text.words import Words
from gliner_bento.errors import InvalidField

Indices = NDArray[np.int64]
WordRange = tuple[int, int]
"""[start, end), in words of the window."""

# A window has at most _MAX_PARTS parts, or one part for each _WORDS_PER_PART words if that is more. If there are more,
# consecutive parts are joined.
_MAX_PARTS, _WORDS_PER_PART = 64, 4
# A window with more characters, most of them white space, is not divided.
_SEARCHED_CHARS = 100_000
# The minimum length of a line that may have been wrapped.
_WRAPPED_CHARS = 50

_SPACES = str.maketrans(dict.fromkeys("\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029", " "))  # what `splitlines` splits at

# The full stop of these abbreviations ends no sentence here, as in Unicode's CLDR; `sentence_ends` knows none of them.
_ABBREVIATION = regex.compile(
    r"(?<![\p{L}\p{N}])(?i:mrs?|ms|dr|prof|st|gen|col|lt|capt|sgt|sen|rep|gov|rev|hon|no|nr|fig|vs|approx)\.\s*+\Z"
)
_ABBREVIATION_CHARS = 20
_ITEM = regex.compile(r"\s*+(?:[-*+\u2022\u2023\u2013]|\p{N}{1,3}[.)])\s")

_SENTENCE, _LINE, _PARAGRAPH = 1, 2, 4  # flags


@dataclass(frozen=True, slots=True)
class RelationWindows:
    """sentences: how many a part has. overlap: how many two consecutive parts share; less than `sentences`."""

    sentences: int
    overlap: int

    @classmethod
    def chosen(
        cls, window: str | None, sentences: int | None, overlap: int | None, default: RelationWindows | None
    ) -> RelationWindows | None:
        """The relation windows that a request's or a server's options set; None: relations are scored in whole windows.

        window: the option `relation_window`; None: "sentences" if one of the two numbers is given, else `default`.
        Raises InvalidField (`relation_window_sentences`, `relation_window_overlap_sentences`).
        """
        if sentences is None and overlap is None and window != "sentences":
            return None if window else default
        if window == "whole":
            param = "relation_window_overlap_sentences" if sentences is None else "relation_window_sentences"
            raise InvalidField(f"{param}: must not be set if relation_window is whole", param=param)
        base = default or _DEFAULT
        sentences = base.sentences if sentences is None else sentences
        if overlap is None:
            overlap = base.overlap if sentences == base.sentences else sentences // 2
        if overlap >= sentences:
            raise InvalidField(
                f"relation_window_overlap_sentences: {overlap} must be less than the {sentences} of a window",
                param="relation_window_overlap_sentences",
            )
        return cls(sentences, overlap)

    def may_divide(self, text: str, words: Words) -> bool:
        """Whether the window may have several parts. False: it is one part, whatever its entities are."""
        _, ends = _boundaries(text, words)
        return len(ends) >= self.sentences or bool((ends > _SENTENCE).any())

    def parts(self, text: str, words: Words, spans: Indices) -> list[WordRange]:
        """The parts with two entities or more. spans: (2, E), starts and ends of entities, in characters of the text.

        No sentence ends inside an entity ("Mr. Smith"). A part with one entity begins a sentence earlier.
        """
        spans = np.unique(spans, axis=1)
        boundaries, ends = _boundaries(text, words)
        chars = words.bounds[boundaries, 0]
        outside = ~((spans[0] < chars[:, None]) & (chars[:, None] < spans[1])).any(axis=1)
        ends = _without_lines(ends[outside], chars[outside].searchsorted(spans[0], "right"))
        starts = [0, *boundaries[outside][ends > 0].tolist(), len(words)]  # the first word of each sentence
        first = words.bounds[:, 0].searchsorted(spans[0], "right") - 1
        last = words.bounds[:, 1].searchsorted(spans[1])
        parts: list[WordRange] = []
        for row, start, stop in self._ranges([*ends[ends > 0].tolist(), _PARAGRAPH]):
            for sentence in (start, max(row, start - 1)):
                part = starts[sentence], starts[stop]
                entities = np.count_nonzero((part[0] <= first) & (last < part[1]))
                if entities != 1:
                    break
            if entities > 1:
                if parts and parts[-1][0] >= part[0]:
                    parts.pop()  # the new part contains it
                parts.append(part)
        max_parts = max(_MAX_PARTS, len(words) // _WORDS_PER_PART)
        joined = max(1, ceil(len(parts) / max_parts))  # parts that are joined to one
        return [(parts[at][0], parts[at : at + joined][-1][1]) for at in range(0, len(parts), joined)]

    def _ranges(self, ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """For each part, numbers of sentences: the first of its paragraph or row, its first, and one past its last.

        ends: the flags of what ends with each sentence.
        """
        row = 0
        for stop, end in enumerate(ends, 1):
            if end != _SENTENCE:
                for start in range(row, max(row + 1, stop - self.overlap), self.sentences - self.overlap):
                    yield row, start, min(start + self.sentences, stop)
                row = stop


_DEFAULT = RelationWindows(1, 0)


def _boundaries(text: str, words: Words) -> tuple[Indices, Indices]:
    """Indices of the words before which a sentence, a line or a paragraph ends, and the flags of what ends there."""
    start, end = words.start, words.end
    if end - start > _SEARCHED_CHARS:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    flat = text[start:end].translate(_SPACES)
    ends = [*_line_ends(text[start:end])]
    for at in sentence_ends(flat, 0, len(flat)):
        if not _ABBREVIATION.search(flat, max(0, at - _ABBREVIATION_CHARS), at):
            ends.append((at, _SENTENCE))
    flags = np.zeros(len(words) + 1, np.int64)
    at, flag = np.array(ends, np.int64).reshape(-1, 2).T
    np.bitwise_or.at(flags, words.bounds[:, 0].searchsorted(start + at), flag)
    flags[[0, -1]] = 0
    boundaries = flags.nonzero()[0]
    return boundaries, flags[boundaries]


def _line_ends(text: str) -> Iterator[tuple[int, int]]:
    """The characters at which paragraphs and lines begin, and the flag of what ends there. Lines are left out if they
    only begin because their first word did not fit into the line before (wrapped text)."""
    at = 0
    for is_blank, group in groupby(text.splitlines(keepends=True), key=str.isspace):
        lines = list(group)
        if not is_blank:
            yield at, _PARAGRAPH
            longest = max(len(line.rstrip()) for line in lines)
            line_start = at
            for line, following in pairwise(lines):
                line_start += len(line)
                needed = len(line.rstrip()) + 1 + len(following.split(maxsplit=1)[0])
                if needed <= longest or longest < _WRAPPED_CHARS:
                    are_rows = any(_marks(line)) and _marks(line) == _marks(following)
                    yield line_start, _PARAGRAPH if are_rows else _LINE
        at += sum(map(len, lines))


def _marks(line: str) -> tuple[int, ...]:
    """Whether a line begins as an item of a list, and how many separators of each kind it has."""
    return bool(_ITEM.match(line)), *(line.count(mark) for mark in "\t|;,")


def _without_lines(ends: Indices, boundaries_before: Indices) -> Indices:
    """The flags, without line breaks next to a line with fewer than two entities; 0: nothing ends there any more.

    boundaries_before: for each entity, the number of boundaries before it."""
    is_line = ends > _SENTENCE
    lines = np.concatenate([[0], np.cumsum(is_line)])
    entities = np.bincount(lines[boundaries_before], minlength=lines[-1] + 1)
    rows = (entities[lines[:-1]] > 1) & (entities[lines[1:]] > 1)
    kept: Indices = np.where((ends & _PARAGRAPH > 0) | rows, ends, ends & _SENTENCE)
    return kept
