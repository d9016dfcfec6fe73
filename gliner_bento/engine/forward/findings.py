"""What a forward finds in a row, and which forward a model takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.decode import Span, chosen


class FoundRelation(NamedTuple):
    """`relation` counts the item's relations from 0; `head` and `tail` the row's spans."""

    relation: int
    head: int
    tail: int
    score: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What one row holds: its spans in order of position, and the relations between them.

    displaced: of a pass of several: spans above the threshold that others left no place for.
    """

    spans: Sequence[Span]
    relations: Sequence[FoundRelation] = ()
    displaced: Sequence[Span] = ()


Forward = Callable[[Any, dict[str, Any], Sequence[Prepared]], list[Findings]]
"""(gliner's inner model, its tensors on its device, rows) -> what each row holds."""


def entities(row: Prepared, spans: Sequence[Span]) -> list[Span]:
    """Of `spans`, those that the item's options let stand."""
    return chosen(spans, flat=row.item.flat_ner, multi_label=row.item.multi_label)


def displaced(row: Prepared, spans: Sequence[Span], standing: Sequence[Span]) -> Sequence[Span]:
    """Of `spans`, those that are not `standing`, if the row is one pass of several: over the whole they may stand."""
    if not row.is_pass or len(standing) == len(spans):
        return ()
    stand = set(standing)
    return [span for span in spans if span not in stand]
