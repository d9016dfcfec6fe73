"""What a head predicts for one text, in word and label numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

WordSpan = tuple[int, int]
"""First and last word, both included."""


class Span(NamedTuple):
    """A scored span: words `first` to `last`, both included. `label` is an index into the item's labels."""

    first: int
    last: int
    label: int
    score: float


class PredictedRelation(NamedTuple):
    """`relation` is an index into the item's relations; `head` and `tail` are indexes into the text's spans."""

    relation: int
    head: int
    tail: int
    score: float


@dataclass(frozen=True, slots=True)
class Predictions:
    """Of one text: spans in order of position, and the relations between them.

    suppressed: of a pass of a chunked request: spans above the threshold that overlap resolution dropped.
    """

    spans: Sequence[Span]
    relations: Sequence[PredictedRelation] = ()
    suppressed: Sequence[Span] = ()
