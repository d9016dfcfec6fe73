"""Converts predictions, in word and label numbers, to results with character offsets and names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.predictions import Predictions, Span
from gliner_bento.types import Entity, Extraction, Relation, RelationArgument, Usage


@dataclass(frozen=True, slots=True)
class PairRelation:
    """`relation` holds from `entities[head]` to `entities[tail]` of the same pass."""

    relation: str
    score: float
    head: int
    tail: int


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass of a chunked request predicted, in characters of the whole text.

    suppressed: entities above the threshold that overlap resolution dropped within the pass.
    """

    entities: Sequence[Entity]
    relations: Sequence[PairRelation] = ()
    suppressed: Sequence[Entity] = ()
    tokens: int = 0


def result_of(prepared: Prepared, predictions: Predictions) -> Extraction | PassResult:
    """The result of an item; of a pass of a chunked request, its `PassResult`."""
    if prepared.result is not None:
        result: Extraction = prepared.result
        return result
    item = prepared.item
    entities = _entities(prepared, predictions.spans)
    names = list(item.relations)
    relations = [PairRelation(names[one.relation], one.score, one.head, one.tail) for one in predictions.relations]
    if prepared.is_pass:
        return PassResult(entities, relations, _entities(prepared, predictions.suppressed), prepared.tokens)
    return Extraction(
        entities=entities,
        relations=with_arguments(relations, entities),
        truncated=prepared.truncated_at is not None,
        truncated_at=prepared.truncated_at,
        usage=Usage(
            words=prepared.words,
            tokens=prepared.tokens,
            windows=int(prepared.words > 0),
            relation_groups=int(bool(names)),
        ),
    )


def with_arguments(relations: Iterable[PairRelation], entities: Sequence[Entity]) -> list[Relation]:
    """Relations with the entities that they hold between."""
    return [
        Relation(one.relation, one.score, _argument(one.head, entities), _argument(one.tail, entities))
        for one in relations
    ]


def _entities(prepared: Prepared, spans: Sequence[Span]) -> list[Entity]:
    if not spans:
        return []
    item, words, labels = prepared.item, prepared.payload.words, list(prepared.item.labels)
    char_spans = [(words[span.first][0], words[span.last][1]) for span in spans]
    return [
        Entity(start, end, item.text[start:end], labels[span.label], span.score)
        for (start, end), span in zip(char_spans, spans, strict=True)
    ]


def _argument(index: int, entities: Sequence[Entity]) -> RelationArgument:
    entity = entities[index]
    return RelationArgument(index, entity.start, entity.end, entity.text, entity.label)
