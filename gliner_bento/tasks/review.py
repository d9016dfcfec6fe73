"""Marks entities for review: those whose score is in a band that the operator sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any


class ReviewMarks:
    """Marks the entities from the lowest to the highest score of a band, both included. As a `ResultMerger`, it is the
    last one. mark: makes the marked entity."""

    def __init__(self, band: Sequence[float], mark: Callable[[Any], Any]) -> None:
        self._lowest, self._highest = band
        self._mark = mark

    def add(self, entities: Iterable[Any]) -> list[Any]:
        """The next entities of the answer."""
        return [self._mark(one) if self._lowest <= one.score <= self._highest else one for one in entities]

    def whole(self, result: Any) -> Any:
        """The result; in a stream, without the entities that `add` has returned."""
        return replace(result, entities=self.add(result.entities))
