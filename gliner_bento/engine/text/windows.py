"""Cuts a long text into overlapping windows. Pure; `merge` puts the results of the windows together.

    words ──▶ Cutter ──▶ windows:   ├────────────┤
                                              ├────────────┤
                                                        ├────────────┤ ──▶ Merger ──▶ entities, relations

A window ends at the end of a sentence if one ends in its last quarter, else at any word. The *context* of a span in a
window is the text between the span and the nearer end of the window; an end of the text itself does not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from gliner_bento.engine.text.sentences import sentence_ends

# A sentence's end is looked for in at most so many characters: white space between words may be of any length.
_SEARCHED_CHARS = 100_000

CharSpan = tuple[int, int]
"""[start, end), in characters of the whole text."""


class Word(NamedTuple):
    """A word with its tokens, and its place in the text, [start, end) in characters."""

    token_ids: Sequence[int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a text.

    number: counted from 0. words: its words; the first `repeated` ones are also in the previous window.
    next_start: the character at which the next window begins; None for the last window.
    """

    number: int
    words: Sequence[Word]
    repeated: int = 0
    next_start: int | None = None

    @property
    def start(self) -> int:
        """Its first character."""
        return self.words[0].start

    @property
    def end(self) -> int:
        """One past its last character."""
        return self.words[-1].end


class Cutter:
    """Cuts one text whose words come in chunks; holds at most one window of them."""

    def __init__(self, text: str, *, max_words: int, max_tokens: int, overlap_words: int) -> None:
        """max_words, max_tokens: of a window. overlap_words: maximum that two windows share; less than `max_words`."""
        self._text = text
        self._max_words = max_words
        self._max_tokens = max_tokens
        self._overlap_words = overlap_words
        self._words: list[Word] = []
        self._tokens = 0
        self._repeated = 0
        self._windows = 0

    def push(self, words: Iterable[Word]) -> Iterator[Window]:
        """Add words; the windows that are complete. No word may have more than `max_tokens` tokens."""
        for word in words:
            self._words.append(word)
            self._tokens += len(word.token_ids)
            while len(self._words) > self._max_words or self._tokens > self._max_tokens:
                yield self._cut()

    def close(self) -> Iterator[Window]:
        """The last window, if there were words."""
        if self._words:
            yield Window(self._windows, self._words, self._repeated)

    def _cut(self) -> Window:
        """A window of the first words that fit, up to the end of a sentence; the other words begin the next window."""
        fit = len(self._words) - 1
        end = self._sentence_start(fit - fit // 4, fit, last=True) or fit
        overlap = min(self._overlap_words, end // 2)
        start = end - overlap
        if overlap:
            start = self._sentence_start(start, end - overlap // 2, last=False) or start
        tokens = sum(len(word.token_ids) for word in self._words[start:])
        while start < end and tokens > self._max_tokens:
            tokens -= len(self._words[start].token_ids)
            start += 1
        window = Window(self._windows, self._words[:end], self._repeated, self._words[start].start)
        self._words, self._tokens, self._repeated = self._words[start:], tokens, end - start
        self._windows += 1
        return window

    def _sentence_start(self, low: int, high: int, *, last: bool) -> int | None:
        """The last or first word from `low` to `high` that begins a sentence; never the first word of the window."""
        low = max(1, low)
        if low <= high and self._words[high].start - self._words[low - 1].start > _SEARCHED_CHARS:
            return None
        ends = sentence_ends(self._text, self._words[low - 1].start, self._words[high].start) if low <= high else []
        starts = [bisect_left(self._words, end, low, high, key=lambda word: word.start) for end in ends]
        if not starts:
            return None
        return starts[-1] if last else starts[0]


def context(window: Window, start: int, end: int) -> float:
    """Characters of context of `[start, end)` in `window`; below 0: the window does not hold all of it."""
    left = start - window.start
    right = window.end - end
    if left < 0 or right < 0:
        return min(left, right)
    return min(inf if window.number == 0 else left, inf if window.next_start is None else right)
