"""The predictions of a head for one text: words and labels are indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gliner_bento.errors import LimitExceeded
from gliner_bento.frozen import frozen

P = ParamSpec("P")
T = TypeVar("T")

WordSpan = tuple[int, int]
"""First and last word, both included."""
Indices = NDArray[np.intp]


class Span(NamedTuple):
    """A scored span: words `first` to `last`, both included. `label` is an index into the item's labels."""

    first: int
    last: int
    label: int
    score: float


@frozen(eq=False)
class SpanTable:
    """Spans, stored as columns because a low threshold gives hundreds of thousands. Iterates over `Span`s."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    label: NDArray[np.int64]
    score: NDArray[np.float64]

    @classmethod
    def of(cls, spans: Iterable[Span]) -> SpanTable:
        """A table of these spans."""
        first, last, label, score = list(zip(*spans, strict=True)) or ((), (), (), ())
        return cls(
            np.array(first, np.int64), np.array(last, np.int64), np.array(label, np.int64), np.array(score, np.float64)
        )

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[Span]:
        columns = (self.first.tolist(), self.last.tolist(), self.label.tolist(), self.score.tolist())
        return (Span(*span) for span in zip(*columns, strict=True))

    def take(self, indices: Indices | NDArray[np.bool_]) -> SpanTable:
        """The spans at these indices, or where a mask is true."""
        return SpanTable(self.first[indices], self.last[indices], self.label[indices], self.score[indices])

    @property
    def word_keys(self) -> NDArray[np.int64]:
        """For each span, a number that identifies its words. The numbers sort by first word, then by last word."""
        return cast("NDArray[np.int64]", (self.first << 32) | self.last)

    def index_of_words(self) -> dict[WordSpan, int]:
        """For the words of each span, the index of the first span of these words."""
        index_of: dict[WordSpan, int] = {}
        for index, words in enumerate(zip(self.first.tolist(), self.last.tolist(), strict=True)):
            index_of.setdefault(words, index)
        return index_of


NO_SPANS = SpanTable.of(())


FieldSpans = Sequence[Sequence[Span]]
"""The values of each field of an instance. For a field with choices, `label` is the index of the choice, and the words
are unused; for any other field, the value is the text of the words, and `label` is unused."""


class PredictedRelation(NamedTuple):
    """`relation` is an index into the item's relations. `head` and `tail` are indexes into `Predictions.spans` followed
    by `Predictions.ends`."""

    relation: int
    head: int
    tail: int
    score: float


@frozen()
class Predictions:
    """The predictions of one text: spans in order of position, and the relations between them.

    suppressed: spans above the threshold that overlap resolution dropped, if this is a pass of a chunked request.
    classes: for each classification of the item, in order, the scores of its labels, in order: (labels,).
    structures: for each structure of the item, in order, its instances, each with the values of its fields.
    cut: the limits of the item (`max_entities`, `max_relations`) beyond which results were dropped.
    ends: those heads and tails of relations that are not in `spans`.
    error: set if there are more results than a limit allows.
    """

    spans: SpanTable = NO_SPANS
    suppressed: SpanTable = NO_SPANS
    cut: Sequence[str] = ()
    relations: Sequence[PredictedRelation] = ()
    ends: SpanTable = NO_SPANS
    classes: Sequence[NDArray[np.float64]] = ()
    structures: Sequence[Sequence[FieldSpans]] = ()
    error: LimitExceeded | None = None

    @classmethod
    def or_error(cls, predict: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Predictions:
        """The result of `predict`. If it raises LimitExceeded, predictions with the error: only this text fails."""
        try:
            return predict(*args, **kwargs)
        except LimitExceeded as error:
            return cls(error=error.with_traceback(None))  # the traceback's frames would keep tensors alive


def class_scores(logits: NDArray[np.float64], *, multi_label: bool) -> NDArray[np.float64]:
    """Scores (labels,) from 0 to 1: with `multi_label` each label is scored on its own, else the scores sum to 1."""
    if multi_label:
        scores: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return scores
    exponentials: NDArray[np.float64] = np.exp(logits - logits.max())
    return exponentials / float(exponentials.sum())
