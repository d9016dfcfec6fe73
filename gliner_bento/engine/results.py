"""Converts predictions, which refer to words and labels by index, to results with character offsets and names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.predictions import FieldSpans, Predictions, Span, SpanTable
from gliner_bento.engine.limits import warning_of
from gliner_bento.engine.text.words import NO_WORDS
from gliner_bento.errors import LimitExceeded
from gliner_bento.frozen import frozen
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.classifications import results_of
from gliner_bento.tasks.extraction import Entity, Extraction, Relation, RelationArgument
from gliner_bento.tasks.structures import FieldValue, Instance, Structure


@frozen()
class PairRelation:
    """`relation` holds from `entities[head]` to `entities[tail]` of the same pass."""

    relation: str
    score: float
    head: int
    tail: int


@frozen(eq=False)
class EntityTable(Sequence[Entity]):
    """Entities of one text, stored as columns because there may be many, most of which are dropped later.

    start, end: in characters of `text`. label: indexes into `names`.
    """

    text: str
    names: Sequence[str]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    label: NDArray[np.int64]
    score: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, index: int) -> Entity: ...
    @overload
    def __getitem__(self, index: slice) -> EntityTable: ...
    def __getitem__(self, index: int | slice) -> Entity | EntityTable:
        if isinstance(index, slice):
            return self.take(index)
        first = range(len(self))[index]  # negative ones count from the end
        return next(iter(self.take(slice(first, first + 1))))

    def __iter__(self) -> Iterator[Entity]:
        columns = (self.start.tolist(), self.end.tolist(), self.label.tolist(), self.score.tolist())
        for start, end, label, score in zip(*columns, strict=True):
            yield Entity(start, end, self.text[start:end], self.names[label], score)

    @classmethod
    def joined(cls, text: str, names: Sequence[str], tables: Iterable[EntityTable]) -> EntityTable:
        """The entities of all tables. `names` contains each table's names."""
        index_of_name = {name: index for index, name in enumerate(names)}
        columns = [np.empty((3, 0), np.int64)]
        scores = [np.empty(0)]
        for table in tables:
            labels = np.array([index_of_name[name] for name in table.names], np.int64)
            columns.append(np.stack([table.start, table.end, labels[table.label]]))
            scores.append(table.score)
        start, end, label = np.concatenate(columns, axis=1)
        return cls(text, names, start, end, label, np.concatenate(scores))

    def take(self, indices: slice | NDArray[np.intp] | NDArray[np.bool_]) -> EntityTable:
        """The entities at these indices, or where a mask is true."""
        columns = (self.start[indices], self.end[indices], self.label[indices], self.score[indices])
        return EntityTable(self.text, self.names, *columns)


@frozen()
class PassResult:
    """The predictions of one pass of a chunked request. Offsets are characters of the whole text.

    suppressed: entities above the threshold that overlap resolution dropped within the pass.
    cut: whether relations were dropped (`max_relations`).
    parts: by field of the result, what `Part.windows` merges. Empty if the pass's item does not ask for it.
    ends: [start, end) of heads and tails that are no entities; relations refer to them as `len(entities)` + index.
    """

    entities: EntityTable
    suppressed: EntityTable
    relations: Sequence[PairRelation] = ()
    tokens: int = 0
    cut: bool = False
    ends: Sequence[tuple[int, int]] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)


def result_of(prepared: Prepared, predictions: Predictions) -> Extraction | PassResult | LimitExceeded:
    """The result of an item; for a pass of a chunked request, a `PassResult`."""
    if predictions.error is not None:
        return predictions.error
    if prepared.result is not None:
        result: Extraction = prepared.result
        return result
    item = prepared.item
    table, ends = _entities(prepared, predictions.spans), _char_spans(prepared, predictions.ends)
    names = list(item.relations)
    relations = [PairRelation(names[pair.relation], pair.score, pair.head, pair.tail) for pair in predictions.relations]
    classification_scores = zip(item.classifications, predictions.classes, strict=True)
    classes = {name: scores.tolist() for name, scores in classification_scores}
    structures = {
        name: [_instance(prepared, fields, values) for values in instances]
        for (name, fields), instances in zip(item.structures.items(), predictions.structures, strict=True)
    }
    if prepared.is_pass:
        suppressed = _entities(prepared, predictions.suppressed)
        cut = bool(predictions.cut)
        parts = {"classifications": classes, "structures": structures}
        return PassResult(table, suppressed, relations, prepared.tokens, cut=cut, ends=ends, parts=parts)
    entities = list(table)
    return Extraction(
        entities=entities,
        relations=with_arguments(relations, entities, item.text, ends) if relations else [],
        classifications=results_of(item.classifications, classes) if classes else {},
        structures=structures,
        truncated=prepared.truncated_at is not None,
        truncated_at=prepared.truncated_at,
        usage=Usage(
            words=prepared.payload.own_words,
            tokens=prepared.tokens,
            windows=int(prepared.words > 0),
            passes=int(prepared.words > 0),
            relation_groups=int(bool(names)),
        ),
        warnings=[warning_of(limit) for limit in predictions.cut],
    )


def with_arguments(
    relations: Iterable[PairRelation], entities: Sequence[Entity], text: str, ends: Sequence[tuple[int, int]]
) -> list[Relation]:
    """Relations with heads and tails in place of their indexes in `entities` followed by `ends`."""

    def argument(index: int) -> RelationArgument:
        if index < len(entities):
            entity = entities[index]
            return RelationArgument(index, entity.start, entity.end, entity.text, entity.label)
        start, end = ends[index - len(entities)]
        return RelationArgument(None, start, end, text[start:end], None)

    return [Relation(pair.relation, pair.score, argument(pair.head), argument(pair.tail)) for pair in relations]


def _entities(prepared: Prepared, spans: SpanTable) -> EntityTable:
    item = prepared.item
    bounds = prepared.payload.bounds if len(spans) else NO_WORDS.bounds  # payloads of GLiClass have no bounds
    starts, ends = bounds[:, 0], bounds[:, 1]
    return EntityTable(item.text, list(item.labels), starts[spans.first], ends[spans.last], spans.label, spans.score)


def _instance(prepared: Prepared, fields: Structure, values: FieldSpans) -> Instance:
    text, bounds = prepared.item.text, prepared.payload.bounds

    def value(choices: Sequence[str], span: Span) -> FieldValue:
        if choices:
            return FieldValue(choices[span.label], span.score)
        start, end = int(bounds[span.first, 0]), int(bounds[span.last, 1])
        return FieldValue(text[start:end], span.score, start, end)

    return {
        name: [value(definition.choices, span) for span in spans]
        for (name, definition), spans in zip(fields.items(), values, strict=True)
    }


def _char_spans(prepared: Prepared, spans: SpanTable) -> Sequence[tuple[int, int]]:
    """[start, end) of each span, in characters."""
    if not len(spans):
        return ()
    bounds = prepared.payload.bounds
    return list(zip(bounds[spans.first, 0].tolist(), bounds[spans.last, 1].tolist(), strict=True))
