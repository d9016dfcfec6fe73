"""Bucketed shapes of padded batches: few enough to be repeated, so that a GPU's kernels can be captured and reused.

A size is rounded up to a multiple of an eighth of the power of two below it, so less than an eighth of it is padding;
sizes up to a least step are rounded up to that.
"""

from __future__ import annotations

from typing import NamedTuple

_STEPS = 8  # buckets between two powers of two
_LEAST_TOKENS = 16
_LEAST_WORDS = 8
_LEAST_LABELS = 8
SPANS_AT_ONCE = 64
"""Spans above the threshold, for each text, that are read from the device in one transfer."""


class Bucket(NamedTuple):
    """The shape of a padded batch.

    texts: number of texts. tokens: of all texts, packed. length: tokens of one text. words, labels, relations: of one
    text.
    """

    texts: int
    tokens: int
    length: int
    words: int
    labels: int
    relations: int

    @classmethod
    def of(cls, texts: int, tokens: int, length: int, words: int, labels: int, relations: int) -> Bucket:
        """The bucket that holds these numbers."""
        return cls(
            bucketed(texts, 1),
            bucketed(tokens, _LEAST_TOKENS),
            bucketed(length, _LEAST_TOKENS),
            bucketed(words, _LEAST_WORDS),
            bucketed(labels, _LEAST_LABELS),
            bucketed(relations, _LEAST_LABELS) if relations else 0,
        )


def bucketed(size: int, least: int) -> int:
    """`size` rounded up to its bucket, a multiple of `least`."""
    step = max(least, (1 << size.bit_length()) // (2 * _STEPS))
    return max(1, -(-size // step)) * step
