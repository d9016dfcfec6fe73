"""Compares two extractions of one text that was split at different places: near the splits, and elsewhere."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

from benchmark.generated import WORD

NEAR_WORDS = 20

Spans = Set[tuple[Any, ...]]
"""Entities: (start, end, label), in characters."""


@dataclass(frozen=True, slots=True)
class BorderAgreement:
    """Number of entities in either or both of two extractions.

    near: with a word within `NEAR_WORDS` of a border; elsewhere: all others.
    """

    near: int = 0
    near_in_both: int = 0
    elsewhere: int = 0
    elsewhere_in_both: int = 0


def compare_at_borders(text: str, first: Spans, second: Spans, borders: Iterable[int]) -> BorderAgreement:
    """How far two extractions agree. borders: where the text was split for either of them, in characters."""
    starts = [word.start() for word in WORD.finditer(text)]
    splits = sorted(bisect_left(starts, border) for border in borders)

    def is_near(entity: tuple[Any, ...]) -> bool:
        first_word, last_word = bisect_right(starts, entity[0]) - 1, bisect_left(starts, entity[1]) - 1
        split = bisect_right(splits, first_word - NEAR_WORDS)
        return split < len(splits) and splits[split] <= last_word + NEAR_WORDS

    near = set(filter(is_near, first | second))
    both, either = first & second, first | second
    return BorderAgreement(len(near), len(near & both), len(either - near), len(both - near))
