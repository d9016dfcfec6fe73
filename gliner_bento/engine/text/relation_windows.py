"""Divides a window into the parts in which relations are scored: a few sentences, or a row of a table. Pure.

    window ──▶ paragraphs, rows ──▶ sentences ──▶ parts:   ├──────────┤
                                                                ├──────────┤

No part reaches over the end of a paragraph, nor over a line break between rows of a table or items of a list: lines
with the same marks, or with two entities each. A line break that wraps a line is white space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import regex
from numpy.typing import NDArray

from gliner_bento.engine.text.sentences import sentence_ends
from gliner_bento.engine.text.words import Words
from gliner_bento.errors import InvalidField

Indices = NDArray[np.int64]
WordRange = tuple[int, int]
"""[start, end), in words of the window."""

# The limit of a window's parts: so many, or one for so many words if these are more. Above it, parts are joined.
_MAX_PARTS, _WORDS_PER_PART = 64, 4
# A window with more characters, most of them white space, is not divided.
_SEARCHED_CHARS = 100_000
# Lines are wrapped at so many characters or more.
_WRAPPED_CHARS = 50

_SPACES = str.maketrans(dict.fromkeys("\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029", " "))  # what `splitlines` splits at

# A full stop after these ends no sentence here, as in Unicode's suppressions (CLDR); UAX 29 has none.
_ABBREVIATION = regex.compile(
    r"(?<![\p{L}\p{N}])(?i:mrs?|ms|dr|prof|st|gen|col|lt|capt|sgt|sen|rep|gov|rev|hon|no|nr|fig|vs|approx)\.\s*+\Z"
)
_ABBREVIATION_CHARS = 20
_ITEM = regex.compile(r"\s*+(?:[-*+\u2022\u2023\u2013]|\p{N}{1,3}[.)])\s")

_SENTENCE, _LINE, _PARAGRAPH = 1, 2, 4  # flags


@dataclass(frozen=True, slots=True)
class RelationWindows:
    """sentences: of a part. overlap: those that two consecutive parts share; fewer than a part has."""

    sentences: int
    overlap: int

    @classmethod
    def chosen(
        cls, window: str | None, sentences: int | None, overlap: int | None, default: RelationWindows | None
    ) -> RelationWindows | None:
        """What these values of the fields of the same names say; None: relations are scored in whole windows.

        A number of sentences, or an overlap, implies `sentences`; without any value, the default counts.
        Raises InvalidField (`relation_window_sentences`, `relation_window_overlap_sentences`).
        """
        if sentences is None and overlap is None and window != "sentences":
            return None if window else default
        if window == "whole":
            param = "relation_window_overlap_sentences" if sentences is None else "relation_window_sentences"
            raise InvalidField(f"{param}: relation_window is whole", param=param)
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
        """Whether the window may have several parts, whatever its entities are."""
        _, ends = _ends(text, words)
        return len(ends) >= self.sentences or bool((ends > _SENTENCE).any())

    def parts(self, text: str, words: Words, spans: Indices) -> list[WordRange]:
        """The parts with two entities or more. spans: (2, E), starts and ends of entities, in characters of the text.

        Nothing ends inside an entity ("Mr. Smith"). A part with one entity has the sentence before it, too.
        """
        spans = np.unique(spans, axis=1)
        places, ends = _ends(text, words)
        chars = words.bounds[places, 0]
        outside = ~((spans[0] < chars[:, None]) & (chars[:, None] < spans[1])).any(axis=1)
        kept = _without_lines(ends[outside], chars[outside].searchsorted(spans[0], "right"))
        sentences = [0, *places[outside][kept > 0].tolist(), len(words)]
        first = words.bounds[:, 0].searchsorted(spans[0], "right") - 1
        last = words.bounds[:, 1].searchsorted(spans[1])
        parts: list[WordRange] = []
        for begin, start, stop in self._ranges([*kept[kept > 0].tolist(), _PARAGRAPH]):
            for at in (start, max(begin, start - 1)):
                part = sentences[at], sentences[stop]
                if (entities := np.count_nonzero((part[0] <= first) & (last < part[1]))) != 1:
                    break
            if entities > 1:
                if parts and parts[-1][0] >= part[0]:
                    parts.pop()  # this one contains it
                parts.append(part)
        together = -(-len(parts) // max(_MAX_PARTS, len(words) // _WORDS_PER_PART)) or 1
        return [(parts[at][0], parts[at : at + together][-1][1]) for at in range(0, len(parts), together)]

    def _ranges(self, ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Numbers of sentences: the first of the paragraph or row, the first of a part, and one past its last one.

        ends: what ends with each sentence.
        """
        begin = 0
        for number, end in enumerate(ends, 1):
            if end != _SENTENCE:
                for start in range(begin, max(begin + 1, number - self.overlap), self.sentences - self.overlap):
                    yield begin, start, min(start + self.sentences, number)
                begin = number


_DEFAULT = RelationWindows(1, 0)


def _ends(text: str, words: Words) -> tuple[Indices, Indices]:
    """The words before which something ends, but the first word, and the flags of what does."""
    start, end = words.start, words.end
    if end - start > _SEARCHED_CHARS:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    flat = text[start:end].translate(_SPACES)
    found = [*_line_ends(text[start:end])]
    for at in sentence_ends(flat, 0, len(flat)):
        if not _ABBREVIATION.search(flat, max(0, at - _ABBREVIATION_CHARS), at):
            found.append((at, _SENTENCE))
    flags = np.zeros(len(words) + 1, np.int64)
    at, flag = np.array(found, np.int64).reshape(-1, 2).T
    np.bitwise_or.at(flags, words.bounds[:, 0].searchsorted(start + at), flag)
    flags[[0, -1]] = 0
    places = flags.nonzero()[0]
    return places, flags[places]


def _line_ends(text: str) -> Iterator[tuple[int, int]]:
    """Where lines begin, but those that begin because the word before did not fit into the longest line of the
    paragraph; and what ends there."""
    at = 0
    for is_blank, group in groupby(text.splitlines(keepends=True), key=str.isspace):
        lines = list(group)
        if not is_blank:
            yield at, _PARAGRAPH
            longest = max(len(line.rstrip()) for line in lines)
            place = at
            for line, following in pairwise(lines):
                place += len(line)
                needed = len(line.rstrip()) + 1 + len(following.split(maxsplit=1)[0])
                if needed <= longest or longest < _WRAPPED_CHARS:
                    yield place, _PARAGRAPH if any(_marks(line)) and _marks(line) == _marks(following) else _LINE
        at += sum(map(len, lines))


def _marks(line: str) -> tuple[int, ...]:
    """What makes a line an item of a list, or a row of a table."""
    return bool(_ITEM.match(line)), *(line.count(mark) for mark in "\t|;,")


def _without_lines(ends: Indices, line_of: Indices) -> Indices:
    """Flags, without line breaks beside a line with fewer than two entities; 0: nothing ends. line_of: of each entity,
    the number of places before it."""
    is_line = ends > _SENTENCE
    lines = np.concatenate([[0], np.cumsum(is_line)])
    entities = np.bincount(lines[line_of], minlength=lines[-1] + 1)
    rows = (entities[lines[:-1]] > 1) & (entities[lines[1:]] > 1)
    kept: Indices = np.where((ends & _PARAGRAPH > 0) | rows, ends, ends & _SENTENCE)
    return kept
