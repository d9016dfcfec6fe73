"""Labels and relations: their JSON in a request, and their form in an item (descriptions, thresholds, heads, tails)."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from gliner_bento.errors import InvalidField
from gliner_bento.tasks.base import Limits
from gliner_bento.tasks.fields import Anything, Elements, Fields, Name, Score, Strict
from gliner_bento.tasks.part import Decided, Part, Row

_MAX_SHOWN_CHARS = 100
_ENDS_PER_LABEL = 10
"""All relations together may name at most `_ENDS_PER_LABEL` x `max_labels` labels as heads, and as many as tails.
If `max_labels` is -1, the number of the request's labels is used instead."""

_Names = Elements[list[Name]]


class TypeOptions(TypedDict, total=False):
    """An entity type or a relation type."""

    __pydantic_config__ = Strict.model_config  # type: ignore[misc]

    description: Annotated[Name | None, Field(description="What the model reads. Default: the name.")]
    threshold: Annotated[Score | None, Field(description="Lowest score. Default: the request's.")]


class LabelOptions(TypeOptions, total=False):
    """An entity type."""

    returned: Annotated[
        bool,
        Field(
            description="Whether its entities are in the answer. `false` makes it a decoy: the model reads it, and it "
            "competes with the other labels for a text. Default: true."
        ),
    ]


class RelationOptions(TypeOptions, total=False):
    """A relation type."""

    head: Annotated[_Names | None, Field(min_length=1, description="Labels that a head may have. Default: any.")]
    tail: Annotated[_Names | None, Field(min_length=1, description="Labels that a tail may have. Default: any.")]


_BY_TYPE = Discriminator(lambda value: "str" if isinstance(value, str) else "dict[options]")
_Value = Annotated[Annotated[Name, Tag("str")] | Annotated[Fields[Anything], Tag("dict[options]")], _BY_TYPE]
if TYPE_CHECKING:  # a Mapping also takes a dict[str, str], unlike dict[str, str | LabelOptions]
    Labels = Sequence[str] | Mapping[str, str | LabelOptions]
    Relations = Sequence[str] | Mapping[str, str | RelationOptions]
    Types = Sequence[str] | Mapping[str, str | TypeOptions]
else:
    Labels = Elements[list[Name] | dict[Name, _Value[LabelOptions]]]
    Relations = Elements[list[Name] | dict[Name, _Value[RelationOptions]]]
    Types = Elements[list[Name] | dict[Name, _Value[TypeOptions]]]

LabelsOption = Annotated[
    Labels | None,
    Field(
        description="Entity types to extract: names; or {name: description}, where the model gets the description "
        "and the response has the name. Repeated names count once; two names may not share a "
        "description. Instead of a description, an object may set `description`, `threshold` and `returned`. "
        "Required, unless there is something else to find."
    ),
]
RelationsOption = Annotated[
    Relations | None,
    Field(
        description="Relation types to extract between the entities: names, or {name: description}. Instead of a "
        "description, an object may set `description`, `threshold`, and the labels that the `head` and "
        "the `tail` may have. Needs a relation extraction model."
    ),
]


def label_options(labels: Labels, *, max_labels: int) -> dict[str, Any]:
    """The fields of an item for its labels. max_labels: maximum number; -1: any number. Raises InvalidField."""
    described, thresholds = _described(labels, "labels", max_labels)
    return {"labels": described, "label_thresholds": thresholds, "decoys": decoys_of(labels)}


def decoys_of(labels: Labels) -> list[str]:
    """The labels whose entities are not returned."""
    return [name for name, options in _with_options(labels) if not options.get("returned", True)]


def relation_options(relations: Relations, labels: Sequence[str], *, max_labels: int) -> dict[str, Any]:
    """The fields of an item for its relations. max_labels: maximum number; -1: any number. Raises InvalidField."""
    described, thresholds = _described(relations, "relations", max_labels)
    max_ends = _ENDS_PER_LABEL * max(max_labels, len(labels))
    return {
        "relations": described,
        "relation_thresholds": thresholds,
        "relation_heads": _ends(relations, "head", labels, max_ends),
        "relation_tails": _ends(relations, "tail", labels, max_ends),
    }


class WithoutDecoys:
    """Drops the entities of labels that are not returned, and the relations that one of them is an end of.

    As a `ResultMerger`, it is the last one: recognizers may use the label of a decoy, too. denied: spans that are
    returned, whatever their labels are.
    """

    def __init__(self, decoys: Collection[str], denied: Iterable[Any] = ()) -> None:
        self._decoys = decoys
        self._denied = {(span.start, span.end, span.label) for span in denied}
        self._place: list[int] = []  # of each entity, in the answer; -1: it is dropped
        self._kept = 0

    def add(self, entities: Iterable[Any]) -> list[Any]:
        """The next entities of the answer."""
        returned = []
        for entity in entities:
            is_denied = (entity.start, entity.end, entity.label) in self._denied
            is_decoy = entity.label in self._decoys and not is_denied
            self._place.append(-1 if is_decoy else self._kept)
            if not is_decoy:
                self._kept += 1
                returned.append(entity)
        return returned

    def whole(self, result: Any) -> Any:
        """The result without the decoys; in a stream, without the entities that `add` has returned."""
        entities = self.add(result.entities)
        relations = [
            replace(relation, head=head, tail=tail)
            for relation in result.relations
            if (head := self._end(relation.head)) and (tail := self._end(relation.tail))
        ]
        return replace(result, entities=entities, relations=relations)

    def _end(self, end: Any) -> Any:
        """An end of a relation in the answer; None if it is a decoy."""
        if end.entity_idx is None:
            return end
        place = self._place[end.entity_idx]
        return None if place < 0 else replace(end, entity_idx=place)


def _decide_labels(options: Any, limits: Limits, _: Decided) -> Decided:
    of_labels = label_options(options.labels or {}, max_labels=limits.max_labels)
    defaults = _defaults(limits.label_thresholds, of_labels["labels"], options.threshold)
    return {**of_labels, "label_thresholds": defaults | of_labels["label_thresholds"]}


def _decide_relations(options: Any, limits: Limits, decided: Decided) -> Decided:
    of_relations = relation_options(options.relations or {}, list(decided["labels"]), max_labels=limits.max_labels)
    defaults = _defaults(limits.relation_thresholds, of_relations["relations"], options.relation_threshold)
    return {**of_relations, "relation_thresholds": defaults | of_relations["relation_thresholds"]}


def _defaults(thresholds: Mapping[str, float], names: Collection[str], requested: float | None) -> dict[str, float]:
    """The server's thresholds of a request's names; none if the request has a threshold for all of them."""
    return {} if requested is not None else {name: thresholds[name] for name in names if name in thresholds}


def _chars(described: Mapping[str, str]) -> int:
    return sum(map(len, described.values()))


def _relation_rows(relations: Sequence[Any]) -> Iterator[Row]:
    for each in relations:
        yield {"head": each.head.text, "relation": each.relation, "tail": each.tail.text, "score": each.score}


ENTITIES = Part(
    option="labels",
    result="entities",
    ability="entities",
    decide=_decide_labels,
    names=len,
    chars=_chars,
    columns=("start", "end", "text", "label", "score"),
    rows=lambda entities: map(asdict, entities),
)
RELATIONS = Part(
    option="relations",
    result="relations",
    ability="relations",
    decide=_decide_relations,
    names=len,
    chars=_chars,
    columns=("head", "relation", "tail", "score"),
    rows=_relation_rows,
)


def _described(
    names: Sequence[str] | Mapping[str, Any], param: str, max_labels: int
) -> tuple[dict[str, str], dict[str, float]]:
    """Names with their descriptions, and the thresholds of those that have one. Repeated names count once."""
    described = {name: name for name in names}
    if 0 < max_labels < len(described):
        raise InvalidField(f"{param}: {len(described)}; the limit is {max_labels} (max_labels)", param=param)
    thresholds: dict[str, float] = {}
    if isinstance(names, Mapping):
        described |= {name: value for name, value in names.items() if isinstance(value, str)}
        for name, options in _with_options(names):
            described[name] = options.get("description") or name
            if (threshold := options.get("threshold")) is not None:
                thresholds[name] = threshold
    return described, thresholds


def _ends(relations: Relations, end: str, labels: Sequence[str], limit: int) -> dict[str, list[int]]:
    """For each relation that limits its `end` (head, tail), indexes of the allowed labels. Raises InvalidField."""
    index_of = {label: index for index, label in enumerate(labels)}
    ends: dict[str, list[int]] = {}
    for relation, options in _with_options(relations):
        if (allowed := options.get(end)) is None:
            continue
        for position, label in enumerate(allowed):
            if label not in index_of:
                raise _unknown(label, labels, f"relations.{relation[:_MAX_SHOWN_CHARS]}.{end}.{position}")
        ends[relation] = sorted({index_of[label] for label in allowed})
    if (total := sum(map(len, ends.values()))) > limit:
        raise InvalidField(f"relations: {total} labels in all lists {end!r}; the limit is {limit}", param="relations")
    return ends


def _with_options(names: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(names, Mapping):
        yield from ((name, value) for name, value in names.items() if isinstance(value, Mapping))


def _unknown(label: str, labels: Sequence[str], param: str) -> InvalidField:
    known = [name for name in labels if len(name) <= _MAX_SHOWN_CHARS]
    nearest = difflib.get_close_matches(label, known, n=1) if len(label) <= _MAX_SHOWN_CHARS else ()
    suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return InvalidField(f"{param}: not one of the request's labels{suggestion}", param=param)
