"""Runs the engine and gliner on the same items, and compares their results."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from checkpoints import LABELS, RELATIONS, TEXTS, named

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.results import PairRelation, PassResult
from gliner_bento.tasks.extraction import Entity, Extraction, Relation, RelationArgument
from gliner_bento.tasks.extraction import ExtractionItem as Item

TOLERANCE = 1e-4


def random_item(seed: int, *, relations: bool) -> Item:
    """An item with options drawn from `seed`."""
    draw = random.Random(seed)
    descriptions = draw.random() < 0.3
    labels = draw.sample(LABELS, draw.randint(1, len(LABELS)))
    return Item(
        text=" ".join(draw.sample(TEXTS, draw.choice([1, 1, 2]))),
        labels={f"L{i}": label for i, label in enumerate(labels)} if descriptions else named(labels),
        relations=named(draw.sample(RELATIONS, draw.randint(0, len(RELATIONS)))) if relations else {},
        threshold=draw.choice([0.2, 0.5, 0.5, 0.8, 0.95]),
        relation_threshold=draw.choice([0.3, 0.5, 0.9]),
        flat_ner=draw.random() < 0.5,
        multi_label=draw.random() < 0.3,
    )


def extract_one(engine: GLiNEREngine, item: Item) -> Extraction:
    """The engine's result for one item."""
    return extract_batch(engine, [item])[0]


def extract_batch(engine: GLiNEREngine, items: Sequence[Item]) -> list[Extraction]:
    """The engine's results for items in one batch."""
    prepared = [engine.prepare(item) for item in items]
    return engine.decode(engine.forward(engine.collate(prepared), 1))


def gliner_extraction(model: Any, item: Item) -> Extraction:
    """gliner's result for one item, as an extraction; relations without repetitions and self-relations."""
    options: dict[str, Any] = {
        "threshold": item.threshold,
        "flat_ner": item.flat_ner,
        "multi_label": item.multi_label,
    }
    relations: list[Any] = [[]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(model, "predict_relations"):
            options |= {"relation_threshold": item.relation_threshold}
            entities, relations = model.inference(
                [item.text], [dict(item.labels)], list(item.relations.values()), **options
            )
        else:
            if hasattr(model, "generate_labels"):
                options |= {"max_new_tokens": 1}
            entities = model.inference([item.text], [dict(item.labels)], **options)
    names = {description: name for name, description in item.relations.items()}
    found = {
        (r["head"]["entity_idx"], r["tail"]["entity_idx"], names[r["relation"]]): r["score"]
        for r in reversed(relations[0])
        if r["head"]["entity_idx"] != r["tail"]["entity_idx"]
    }
    arguments = [RelationArgument(i, e["start"], e["end"], e["text"], e["label"]) for i, e in enumerate(entities[0])]
    return Extraction(
        [Entity(e["start"], e["end"], e["text"], e["label"], e["score"]) for e in entities[0]],
        [
            Relation(name, score, arguments[head], arguments[tail])
            for (head, tail, name), score in reversed(found.items())
        ],
    )


def assert_same(answer: Extraction | PassResult, expected: Extraction) -> None:
    """Same spans, labels and relations; scores within the tolerance."""
    assert [(e.start, e.end, e.text, e.label) for e in answer.entities] == [
        (e.start, e.end, e.text, e.label) for e in expected.entities
    ]
    assert [e.score for e in answer.entities] == pytest.approx([e.score for e in expected.entities], abs=TOLERANCE)
    scores = {(r.relation, *ends_of(r)): r.score for r in answer.relations}
    assert len(scores) == len(answer.relations)
    assert scores == pytest.approx({(r.relation, *ends_of(r)): r.score for r in expected.relations}, abs=TOLERANCE)
    if isinstance(answer, Extraction):
        for end in chain.from_iterable((r.head, r.tail) for r in answer.relations):
            entity = answer.entities[end.entity_idx]
            assert (end.start, end.end, end.text, end.label) == (entity.start, entity.end, entity.text, entity.label)


def ends_of(relation: Relation | PairRelation) -> tuple[int, int]:
    """Indexes of head and tail among the entities."""
    if isinstance(relation, PairRelation):
        return relation.head, relation.tail
    return relation.head.entity_idx, relation.tail.entity_idx
