"""Two readings of one text that was cut at different places: do they differ near where it was cut, or elsewhere?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

from gliner_bento.benchmark.workload import WORD

NEAR_WORDS = 20

Spans = Set[tuple[Any, ...]]
"""Entities: (start, end, label), in characters."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Entities that one of two readings found or both did: with a word among the 20 next to a border, and elsewhere."""

    near: int = 0
    near_in_both: int = 0
    elsewhere: int = 0
    elsewhere_in_both: int = 0


def compared(text: str, one: Spans, other: Spans, borders: Iterable[int]) -> Compared:
    """How far the readings agree. borders: where the text was cut for either, in characters."""
    starts = [word.start() for word in WORD.finditer(text)]
    cuts = sorted(bisect_left(starts, border) for border in borders)

    def is_near(entity: tuple[Any, ...]) -> bool:
        first, last = bisect_right(starts, entity[0]) - 1, bisect_left(starts, entity[1]) - 1
        cut = bisect_right(cuts, first - NEAR_WORDS)
        return cut < len(cuts) and cuts[cut] <= last + NEAR_WORDS

    near = set(filter(is_near, one | other))
    both, every = one & other, one | other
    return Compared(len(near), len(near & both), len(every - near), len(both - near))
