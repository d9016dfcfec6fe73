"""Consecutive words of a text in columns: their tokens and their positions, without an object for each word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gliner_bento.frozen import frozen

TokenIds = NDArray[np.int32]
_TOKEN_BYTES = np.dtype(np.int32).itemsize


def token_array(ids: Sequence[int] = ()) -> TokenIds:
    """Token ids as an array."""
    return np.array(ids, np.int32)


def no_positions() -> NDArray[np.int64]:
    """An empty array of positions."""
    return np.empty(0, np.int64)


@frozen(eq=False)
class Words:
    """W words with T tokens in all.

    token_ids: (T,), word after word. counts: (W,), tokens of each word. bounds: (W, 2), [start, end) of each word in
    characters of the text.
    """

    token_ids: TokenIds
    counts: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[bytes], bounds: NDArray[np.int64]) -> Words:
        """The words that have tokens. ids: the tokens of each word as `Subwords.of_words` returns them."""
        counts = np.fromiter(map(len, ids), np.int64, len(ids)) // _TOKEN_BYTES
        if not all(ids):
            counts, bounds = counts[counts > 0], bounds[counts > 0]
        return cls(np.frombuffer(b"".join(ids), np.int32), counts, bounds)

    @classmethod
    def joined(cls, parts: Sequence[Words]) -> Words:
        """The words of all parts."""
        if len(parts) == 1:
            return parts[0]
        parts = [NO_WORDS, *parts]
        return cls(
            np.concatenate([part.token_ids for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.bounds for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, which: slice) -> Words:
        start, stop, _ = which.indices(len(self))
        first_token = int(self.counts[:start].sum())
        end_token = first_token + int(self.counts[start:stop].sum())
        return Words(self.token_ids[first_token:end_token], self.counts[start:stop], self.bounds[start:stop])

    def fitting(self, max_words: int, max_tokens: int) -> int:
        """How many words, from the first one on, are within both limits."""
        # A word without its tokens has a count nevertheless: see `OVERLONG` of `tokenize`.
        tokens = len(self.token_ids) or self.counts.sum()
        if tokens <= max_tokens and len(self) <= max_words:
            return len(self)
        return min(max_words, int(self.counts.cumsum().searchsorted(max_tokens, "right")))

    def borders(self) -> Words:
        """The first and the last word, without their tokens."""
        return Words(NO_WORDS.token_ids, np.zeros(2, np.int64), self.bounds[[0, -1]])

    @property
    def start(self) -> int:
        """The first character."""
        return int(self.bounds[0, 0])

    @property
    def end(self) -> int:
        """One past the last character."""
        return int(self.bounds[-1, 1])


NO_WORDS = Words(token_array(), np.empty(0, np.int64), np.empty((0, 2), np.int64))
