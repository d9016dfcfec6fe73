"""Bucketed shapes of padded batches. There are few, so that they recur and their CUDA graphs can be replayed.

Between two powers of two there are 2, 4 or 8 sizes to round up to: more for dimensions whose padding costs more.
"""

from __future__ import annotations

from typing import NamedTuple

_TOKEN_SIZES, _WORD_SIZES, _TEXT_SIZES = 8, 4, 2  # number of sizes between two powers of two
_PACKED_SHARES = 4  # the number of packed tokens is rounded up to a multiple of a quarter of the number of padded ones
_LEAST_TOKENS = 16
_LEAST_WORDS = 8
_LEAST_LABELS = 8
SPANS_PER_TEXT = 64
"""Spans per text that the first transfer from the device has room for. Only spans above the threshold are sent."""


class Bucket(NamedTuple):
    """The shape of a padded batch.

    texts: number of texts. tokens: packed tokens of all texts. length: tokens of one text, padded. words, labels,
    relations: their number in one text, padded.
    """

    texts: int
    tokens: int
    length: int
    words: int
    labels: int
    relations: int

    @classmethod
    def of(cls, texts: int, tokens: int, length: int, words: int, labels: int, relations: int) -> Bucket:
        """The bucket that holds these numbers. length, words, labels, relations: the highest of all texts."""
        texts = bucketed(texts, 1, _TEXT_SIZES)
        length = bucketed(length, _LEAST_TOKENS, _TOKEN_SIZES)
        packed_step = (texts * length + _PACKED_SHARES - 1) // _PACKED_SHARES
        packed_tokens = (tokens + packed_step - 1) // packed_step * packed_step
        return cls(
            texts,
            packed_tokens,
            length,
            bucketed(words, _LEAST_WORDS, _WORD_SIZES),
            bucketed(labels, _LEAST_LABELS, _WORD_SIZES),
            bucketed(relations, _LEAST_LABELS, _WORD_SIZES) if relations else 0,
        )


def bucketed(size: int, least: int, sizes: int) -> int:
    """`size` rounded up to its bucket, a multiple of `least`. sizes: number of buckets between two powers of two."""
    next_power_of_two = 1 << size.bit_length()
    step = max(least, next_power_of_two // (2 * sizes))
    steps = (size + step - 1) // step
    return max(1, steps) * step
