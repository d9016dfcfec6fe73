"""The options of each relation of an item: its threshold, and the labels that its head and its tail may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gliner_bento.tasks.extraction import ExtractionItem as Item

Flags = NDArray[np.bool_]


def relation_thresholds_of(item: Item) -> float | NDArray[np.float64]:
    """The threshold of all relations, or an array with the threshold of each relation."""
    if not item.relation_thresholds:
        return item.relation_threshold
    return np.array([item.relation_thresholds.get(name, item.relation_threshold) for name in item.relations])


@dataclass(frozen=True, slots=True)
class AllowedEnds:
    """The labels that the head and the tail of each relation may have: two masks (relations, labels)."""

    heads: Flags
    tails: Flags

    @classmethod
    def of(cls, item: Item) -> AllowedEnds | None:
        """The allowed labels of an item's relations; None if no relation is limited to labels."""
        if not item.relation_heads and not item.relation_tails:
            return None
        return cls(_flags(item, item.relation_heads), _flags(item, item.relation_tails))

    def permit(self, relation: Any, head: Any, tail: Any) -> Any:
        """Whether a relation may have these labels as head and tail. Takes indexes, or arrays of equal length."""
        return self.heads[relation, head] & self.tails[relation, tail]

    def usable_entities(self, labels: NDArray[np.int64]) -> Flags:
        """For each entity, (E,), whether any relation allows it as head or tail. labels: of the entities (E,)."""
        usable: Flags = np.logical_or.reduce(self.heads | self.tails, axis=0)[labels]
        return usable

    def pairs(self, labels: NDArray[np.int64]) -> Flags:
        """For each pair (E, E), whether any relation allows it as head and tail. labels: of the entities (E,)."""
        # float32, because numpy multiplies boolean matrices slowly
        label_pairs = self.heads.T.astype(np.float32) @ self.tails.astype(np.float32) > 0
        flags: Flags = label_pairs[labels[:, None], labels]
        return flags


def _flags(item: Item, labels_of: Mapping[str, Sequence[int]]) -> Flags:
    """The mask (relations, labels) of the allowed labels; a relation that is not in `labels_of` may have any label."""
    flags = np.ones((len(item.relations), len(item.labels)), np.bool_)
    for number, name in enumerate(item.relations):
        if (labels := labels_of.get(name)) is not None:
            flags[number] = False
            flags[number, list(labels)] = True
    return flags
