"""Divides a window into relation windows, here called parts: a few sentences, or a row of a table. Pure.

    window ──▶ blocks ──▶ sentences ──▶ parts:   ├──────────┤
                                                      ├──────────┤

No part crosses the end of a block: a paragraph, a row of a table or an item of a list. Consecutive lines are rows or
items if they have equal marks (separators, bullets), or at least two entities each. Other line breaks are white space.
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

# The limit of a window's parts: _MAX_PARTS, or one for every _WORDS_PER_PART words, whichever is higher. Above it,
# consecutive parts are joined.
_MAX_PARTS, _WORDS_PER_PART = 64, 4
# A window with more characters is not divided. Only very long words, or much white space, make a window that long.
_SEARCHED_CHARS = 100_000
# Lines may be wrapped text only if the longest line has at least this many characters.
_WRAPPED_CHARS = 50

# Replaces the characters at which `splitlines` splits with spaces.
_TO_SPACES = str.maketrans(dict.fromkeys("\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029", " "))

# The full stop of these abbreviations ends no sentence here, as in Unicode's CLDR; `sentence_ends` knows none of them.
_ABBREVIATION = regex.compile(
    r"(?<![\p{L}\p{N}])(?i:mrs?|ms|dr|prof|st|gen|col|lt|capt|sgt|sen|rep|gov|rev|hon|no|nr|fig|vs|approx)\.\s*+\Z"
)
_ABBREVIATION_CHARS = 20
_ITEM = regex.compile(r"\s*+(?:[-*+\u2022\u2023\u2013]|\p{N}{1,3}[.)])\s")  # the bullet or number of a list's item

_SENTENCE, _LINE, _BLOCK = 1, 2, 4  # flags of what ends at a boundary


@dataclass(frozen=True, slots=True)
class RelationWindows:
    """How to divide a window: into parts of `sentences` sentences; consecutive parts share `overlap` (fewer)."""

    sentences: int
    overlap: int

    @classmethod
    def chosen(
        cls, window: str | None, sentences: int | None, overlap: int | None, default: RelationWindows | None
    ) -> RelationWindows | None:
        """The relation windows that a request's or a server's options set; None if relations are scored in whole ones.

        window: the option `relation_window`; None: "sentences" if one of the two numbers is given, else `default`.
        Raises InvalidField (`relation_window_sentences`, `relation_window_overlap_sentences`).
        """
        if window == "whole":
            if sentences is None and overlap is None:
                return None
            param = "relation_window_overlap_sentences" if sentences is None else "relation_window_sentences"
            raise InvalidField(f"{param}: must not be set if relation_window is whole", param=param)
        if window is None and sentences is None and overlap is None:
            return default
        base = default or _DEFAULT
        sentences = base.sentences if sentences is None else sentences
        if overlap is None:
            overlap = base.overlap if sentences == base.sentences else sentences // 2
        if overlap >= sentences:
            param = "relation_window_overlap_sentences"
            raise InvalidField(
                f"{param}: {overlap} must be less than relation_window_sentences ({sentences})", param=param
            )
        return cls(sentences, overlap)

    def may_divide(self, text: str, words: Words) -> bool:
        """Whether the window may have several parts. If not, it is one part, whatever its entities are."""
        _, flags = _boundaries(text, words)
        return len(flags) >= self.sentences or bool((flags > _SENTENCE).any())

    def parts(self, text: str, words: Words, spans: Indices) -> list[WordRange]:
        """The parts with two entities or more. spans: (2, E), starts and ends of entities, in characters of the text.

        No sentence ends inside an entity ("Mr. Smith"). A part with only one entity also takes the sentence before it.
        """
        spans = np.unique(spans, axis=1)
        boundary_words, flags = _boundaries(text, words)
        boundary_chars = words.bounds[boundary_words, 0]
        in_entity = ((spans[0] < boundary_chars[:, None]) & (boundary_chars[:, None] < spans[1])).any(axis=1)
        outside = ~in_entity
        flags = _keep_rows(flags[outside], boundary_chars[outside].searchsorted(spans[0], "right"))
        sentence_words = [0, *boundary_words[outside][flags > 0].tolist(), len(words)]  # where each sentence begins
        first_words = words.bounds[:, 0].searchsorted(spans[0], "right") - 1  # of each entity
        last_words = words.bounds[:, 1].searchsorted(spans[1])
        parts: list[WordRange] = []
        for block, start, stop in self._ranges([*flags[flags > 0].tolist(), _BLOCK]):
            begin, end = sentence_words[start], sentence_words[stop]
            before_end = last_words < end
            entities = np.count_nonzero(before_end & (first_words >= begin))
            if entities == 1 and start > block:
                begin = sentence_words[start - 1]
                entities = np.count_nonzero(before_end & (first_words >= begin))
            if entities > 1:
                if parts and parts[-1][0] >= begin:
                    parts.pop()  # the new part contains it
                parts.append((begin, end))
        max_parts = max(_MAX_PARTS, len(words) // _WORDS_PER_PART)
        parts_per_group = max(1, ceil(len(parts) / max_parts))
        groups = [parts[at : at + parts_per_group] for at in range(0, len(parts), parts_per_group)]
        return [(group[0][0], group[-1][1]) for group in groups]

    def _ranges(self, flags: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """For each part, indexes of sentences: the first of the block, the first of the part, and the end of the part.

        flags: of what ends with each sentence.
        """
        block = 0
        for stop, flag in enumerate(flags, 1):
            if flag != _SENTENCE:
                # A part that begins in a block's last `overlap` sentences is left out: the previous part contains it.
                for start in range(block, max(block + 1, stop - self.overlap), self.sentences - self.overlap):
                    yield block, start, min(start + self.sentences, stop)
                block = stop


_DEFAULT = RelationWindows(sentences=1, overlap=0)


def _boundaries(text: str, words: Words) -> tuple[Indices, Indices]:
    """Indices of the words before which a sentence, a line or a block ends, and the flags of what ends there."""
    start, end = words.start, words.end
    if end - start > _SEARCHED_CHARS:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    flat = text[start:end].translate(_TO_SPACES)
    ends = [*_line_ends(text[start:end])]
    for at in sentence_ends(flat, 0, len(flat)):
        if not _ABBREVIATION.search(flat, max(0, at - _ABBREVIATION_CHARS), at):
            ends.append((at, _SENTENCE))
    flags = np.zeros(len(words) + 1, np.int64)
    end_chars, end_flags = np.array(ends, np.int64).reshape(-1, 2).T
    np.bitwise_or.at(flags, words.bounds[:, 0].searchsorted(start + end_chars), end_flags)
    flags[[0, -1]] = 0
    boundaries = flags.nonzero()[0]
    return boundaries, flags[boundaries]


def _line_ends(text: str) -> Iterator[tuple[int, int]]:
    """For each end of a line or block, the character at which the next one begins, and the flag. Leaves out lines that
    only end because the next word did not fit (wrapped text)."""
    at = 0
    for is_blank, group in groupby(text.splitlines(keepends=True), key=str.isspace):
        lines = list(group)
        if not is_blank:
            yield at, _BLOCK
            longest = max(len(line.rstrip()) for line in lines)
            line_start = at
            for line, following in pairwise(lines):
                line_start += len(line)
                needed = len(line.rstrip()) + 1 + len(following.split(maxsplit=1)[0])
                is_wrapped = needed > longest >= _WRAPPED_CHARS
                if not is_wrapped:
                    are_rows = any(_marks(line)) and _marks(line) == _marks(following)
                    yield line_start, _BLOCK if are_rows else _LINE
        at += sum(map(len, lines))


def _marks(line: str) -> tuple[int, ...]:
    """Whether a line begins as an item of a list, and how many separators of each kind it has."""
    return bool(_ITEM.match(line)), *(line.count(mark) for mark in "\t|;,")


def _keep_rows(flags: Indices, boundaries_before: Indices) -> Indices:
    """The flags, with ends of lines only between rows (lines with two entities or more). 0: nothing ends there.

    boundaries_before: for each entity, the number of boundaries before it."""
    line_numbers = np.concatenate([[0], np.cumsum(flags > _SENTENCE)])  # before each boundary, and after the last
    entities = np.bincount(line_numbers[boundaries_before], minlength=line_numbers[-1] + 1)  # of each line
    between_rows = (entities[line_numbers[:-1]] > 1) & (entities[line_numbers[1:]] > 1)
    kept: Indices = np.where(((flags & _BLOCK) > 0) | between_rows, flags, flags & _SENTENCE)
    return kept
