"""Cuts a long text into overlapping windows. Pure; `merge` puts the results of the windows together.

    words ──▶ Cutter ──▶ windows:   ├────────────┤
                                              ├────────────┤
                                                        ├────────────┤ ──▶ Merger ──▶ entities, relations

A window ends at the end of a sentence if one ends in its last quarter, else at any word. The *context* of a span in a
window is the text between the span and the nearer end of the window; an end of the text itself does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from gliner_bento.engine.text.sentences import sentence_ends
from gliner_bento.engine.text.words import NO_WORDS, Words

# The end of a sentence is searched in at most this many characters: white space between words may be of any length.
_SEARCHED_CHARS = 100_000

CharSpan = tuple[int, int]
"""[start, end), in characters of the whole text."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A piece of a text.

    number: counted from 0. words: its words; the first `repeated` ones are also in the previous window.
    next_start: the character at which the next window begins; None for the last window.
    """

    number: int
    words: Words
    repeated: int = 0
    next_start: int | None = None

    @property
    def start(self) -> int:
        """Its first character."""
        return self.words.start

    @property
    def end(self) -> int:
        """One past its last character."""
        return self.words.end


class Cutter:
    """Cuts one text whose words come in chunks. Between calls, it holds the words of at most one window."""

    def __init__(self, text: str, *, max_words: int, max_tokens: int, overlap_words: int) -> None:
        """max_words, max_tokens: of a window. overlap_words: maximum that two windows share; less than `max_words`."""
        self._text = text
        self._max_words = max_words
        self._max_tokens = max_tokens
        self._overlap_words = overlap_words
        self._words = NO_WORDS
        self._repeated = 0
        self._windows = 0

    def push(self, words: Words) -> Iterator[Window]:
        """Add words, and yield the windows that are complete. No word may have more than `max_tokens` tokens."""
        self._words = Words.joined([self._words, words])
        while (fit := self._words.fitting(self._max_words, self._max_tokens)) < len(self._words):
            yield self._cut(fit)

    def close(self) -> Iterator[Window]:
        """Yield the last window, if there were words."""
        if self._words:
            yield Window(self._windows, self._words, self._repeated)

    def _cut(self, fit: int) -> Window:
        """Cut off a window of at most `fit` words. Keeps the words of the overlap, and those after the window."""
        end = self._sentence_start(fit - fit // 4, fit, last=True) or fit
        overlap = min(self._overlap_words, end // 2)
        start = end - overlap
        if overlap:
            start = self._sentence_start(start, end - overlap // 2, last=False) or start
        # Shorten the overlap so that the next window has room for the first word that did not fit.
        tokens = self._words.counts[start : fit + 1]
        excess = tokens.sum() - self._max_tokens
        if excess > 0:
            start = min(end, start + int(tokens.cumsum().searchsorted(excess)) + 1)
        window = Window(self._windows, self._words[:end], self._repeated, int(self._words.bounds[start, 0]))
        self._words, self._repeated = self._words[start:], end - start
        self._windows += 1
        return window

    def _sentence_start(self, low: int, high: int, *, last: bool) -> int | None:
        """The last or first word from `low` to `high` that begins a sentence, other than the window's first word."""
        low = max(1, low)
        starts = self._words.bounds[low - 1 : high + 1, 0]
        if low > high or starts[-1] - starts[0] > _SEARCHED_CHARS:
            return None
        ends = sentence_ends(self._text, int(starts[0]), int(starts[-1]))
        if not ends:
            return None
        return low + int(starts[1:-1].searchsorted(ends[-1 if last else 0]))


def context(window: Window, start: int, end: int) -> float:
    """Characters of context of `[start, end)` in `window`; below 0 if the window does not hold all of it."""
    left = start - window.start
    right = window.end - end
    if left < 0 or right < 0:
        return min(left, right)
    return min(inf if window.number == 0 else left, inf if window.next_start is None else right)
