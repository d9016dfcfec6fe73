"""Thresholds of labels and relations, and the labels that a relation holds between."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import LABELS, RELATIONS, TEXTS, checkpoint_in, named
from chunked_requests import LIVELY, extract_in_passes, long_text, many, passes_of
from comparison import assert_same, extract_batch, extract_one, gliner_extraction, random_item
from views import view

from gliner_bento.engine.checkpoint.load import load
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.heads import relations as relation_head
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import LimitExceeded
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

RELATIONAL = ["relex-span", "relex-span-dot", "relex-span-gcn", "relex-span-triples", "relex-token", "relex-token-gat"]
FAMILIES = ["span", "token", "token-spans", "bi-span", *RELATIONAL]
SCORES = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]


def with_thresholds(item: Item, seed: int, family: str = "span") -> Item:
    """With a threshold of their own for some labels and relations."""
    draw = random.Random(seed)
    scores = SCORES if "relex-token" not in family else SCORES[5:]  # gliner relates all spans that it proposes
    return replace(
        item,
        threshold=max(item.threshold, scores[0]),
        label_thresholds={name: draw.choice(scores) for name in item.labels if draw.random() < 0.6},
        relation_thresholds={name: draw.choice(SCORES) for name in item.relations if draw.random() < 0.6},
    )


def with_ends(item: Item, seed: int) -> Item:
    """With labels that some relations' heads and tails may have."""
    draw = random.Random(seed)
    numbers = range(len(item.labels))
    heads, tails = (
        {name: draw.sample(numbers, draw.randint(1, len(numbers))) for name in item.relations if draw.random() < 0.7}
        for _ in range(2)
    )
    return replace(item, relation_heads=heads, relation_tails=tails)


def gliner_served(folder: Path) -> GLiNEREngine:
    """gliner's own forward pass, as it is served after a failed self-test."""
    model = load(checkpoint_in(folder), torch.device("cpu"), torch.float32)
    return GLiNEREngine(model, "gliner's", view(EngineOptions), gliner_forward=True)


def without_own(item: Item) -> Item:
    return replace(item, label_thresholds={}, relation_thresholds={}, relation_heads={}, relation_tails={})


def gliner_masked(model: Any, item: Item) -> Extraction:
    """gliner's forward and decoding at the lowest thresholds, without the scores below their own threshold."""
    thresholds = torch.tensor([item.label_thresholds.get(name, item.threshold) for name in item.labels])
    of_relations = [item.relation_thresholds.get(name, item.relation_threshold) for name in item.relations]
    relation_thresholds = torch.tensor(of_relations)

    def masked(logits: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(logits.sigmoid() < least, -torch.inf)

    def run_batch(batch: Any, **options: Any) -> Any:
        if "adjacency_threshold" in options:
            options["adjacency_threshold"] = item.threshold
        output = type(model).run_batch(model, batch, **options)
        output.logits = masked(output.logits, thresholds[:, None] if output.logits.shape[-1] == 3 else thresholds)
        if getattr(output, "span_logits", None) is not None:
            output.span_logits = masked(output.span_logits, thresholds)
        if item.relations and output.rel_logits.numel():
            output.rel_logits = masked(output.rel_logits, relation_thresholds)
        return output

    model.run_batch = run_batch
    try:
        lowest = min(thresholds.tolist())
        lowest_relation = min(of_relations, default=item.relation_threshold)
        return gliner_extraction(model, replace(item, threshold=lowest, relation_threshold=lowest_relation))
    finally:
        del model.run_batch


def typed(answer: Extraction, item: Item) -> Extraction:
    """The relations whose ends have labels that they may have."""
    number = {name: number for number, name in enumerate(item.labels)}

    def may(relation: str, label: str, ends: Any) -> bool:
        return relation not in ends or number[label] in ends[relation]

    kept = [
        one
        for one in answer.relations
        if may(one.relation, one.head.label, item.relation_heads)
        and may(one.relation, one.tail.label, item.relation_tails)
    ]
    return replace(answer, relations=kept)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_labels_threshold_is_gliners_decoding_without_the_scores_below_it(
    family: str, engine: Any, reference: Any
) -> None:
    served, model = engine(family, backbone="bert", seed=1), reference(family, backbone="bert", seed=1)
    relational = served.info.supports_relations
    found = changed = relations = 0
    for seed in range(60):
        item = with_thresholds(random_item(seed, relations=relational), seed, family)
        if len(item.labels) == 3:  # `gliner_masked` recognizes tags by their three scores
            continue
        expected = gliner_masked(model, item)
        answer = extract_one(served, item)
        assert_same(answer, expected)
        found += len(answer.entities)
        relations += len(answer.relations)
        changed += answer.entities != extract_one(served, without_own(item)).entities
        if seed > 12 and found > 20 and changed > 4 and (relations > 5 or not relational):
            return
    pytest.fail(f"a test of little: {found} entities, {changed} changed, {relations} relations")


@pytest.mark.parametrize("family", RELATIONAL)
def test_typed_relations_are_those_between_the_labels(family: str, engine: Any) -> None:
    served = engine(family, backbone="bert", seed=1)
    kept = dropped = 0
    for seed in range(60):
        item = with_ends(with_thresholds(random_item(seed, relations=True), seed), seed)
        everything = extract_one(served, replace(item, relation_heads={}, relation_tails={}))
        expected = typed(everything, item)
        assert_same(extract_one(served, item), expected)
        kept += len(expected.relations)
        dropped += len(everything.relations) - len(expected.relations)
        if seed > 12 and kept > 5 and dropped > 5:
            return
    pytest.fail(f"a test of little: {kept} kept, {dropped} dropped")


@pytest.mark.parametrize("family", FAMILIES)
def test_they_do_not_depend_on_batching(family: str, engine: Any) -> None:
    served = engine(family, backbone="bert", seed=1)
    items = [random_item(seed, relations=served.info.supports_relations) for seed in range(12)]
    items = [with_ends(with_thresholds(item, seed), seed) if seed % 3 else item for seed, item in enumerate(items)]
    for item, answer in zip(items, extract_batch(served, items), strict=True):
        assert_same(answer, extract_one(served, item))


@pytest.mark.parametrize("family", ["span", "token", "token-spans", "relex-span-gcn", "relex-token-gat"])
def test_gliners_own_forward_gives_the_same(family: str, checkpoint: Any, engine: Any) -> None:
    fast = engine(family, backbone="bert", seed=1)
    slow = gliner_served(checkpoint(family, backbone="bert", seed=1))
    relational, compared = fast.info.supports_relations, 0
    for seed in range(12):
        item = with_ends(with_thresholds(random_item(seed, relations=relational), seed, family), seed)
        answer = extract_one(slow, item)
        if not isinstance(answer, LimitExceeded):  # gliner relates all spans that it proposes
            assert_same(answer, extract_one(fast, item))
            compared += 1
    assert compared > 3


@pytest.mark.parametrize("family", FAMILIES)
def test_one_threshold_for_all_labels_is_the_requests(family: str, engine: Any) -> None:
    served = engine(family, backbone="bert", seed=1)
    for seed in range(8):
        item = random_item(seed, relations=served.info.supports_relations)
        own = replace(
            item,
            label_thresholds=dict.fromkeys(item.labels, item.threshold),
            relation_thresholds=dict.fromkeys(item.relations, item.relation_threshold),
            relation_threshold=0.999,
            relation_heads={name: list(range(len(item.labels))) for name in item.relations},
        )
        assert extract_one(served, own) == extract_one(served, item)


@pytest.mark.parametrize("number", [6, 70], ids=["windows", "windows and label groups"])
@pytest.mark.parametrize("options", [{}, {"flat_ner": False, "multi_label": True}], ids=["flat", "nested"])
def test_thresholds_in_a_chunked_request(number: int, options: Any, engine: Any) -> None:
    """Each pass has the spans above their label's threshold; the rest is as with one threshold."""
    served = engine("span", **LIVELY)
    labels = named(LABELS) if number == 6 else many(number)
    item = Item(long_text(3), labels, threshold=0.3, **options)
    item = replace(item, label_thresholds={name: SCORES[n % len(SCORES)] for n, name in enumerate(sorted(labels))})
    lowest = extract_in_passes(served, replace(item, threshold=0.1, label_thresholds={}))
    common, _ = Counter(entity.label for entity in lowest.entities).most_common(1)[0]
    item = replace(item, label_thresholds={**item.label_thresholds, common: 0.999995})
    answer, passes = passes_of(served, item, seed=1)
    assert len(passes) > 3
    assert all(entity.score > item.label_thresholds[entity.label] for entity in answer.entities)
    assert answer.entities != lowest.entities
    for one in passes[:5]:
        alone = served.decode(served.forward(served.collate([one]), 1))[0]
        everything = replace(one, item=replace(one.item, threshold=0.1, label_thresholds={}))
        below = served.decode(served.forward(served.collate([everything]), 1))[0]
        expected = {
            (e.start, e.end, e.label, e.score)
            for e in (*below.entities, *below.suppressed)
            if e.score > item.label_thresholds[e.label]
        }
        assert {(e.start, e.end, e.label, e.score) for e in (*alone.entities, *alone.suppressed)} == expected


@pytest.mark.parametrize("number", [6, 60], ids=["windows", "windows and label groups"])
def test_typed_relations_in_a_chunked_request(number: int, engine: Any) -> None:
    served = engine("relex-span", **LIVELY)
    labels = named(LABELS) if number == 6 else many(number)
    item = Item(long_text(2, 10), labels, named(RELATIONS), threshold=0.1, relation_threshold=0.1, window_words=24)
    item = with_ends(replace(item, relation_thresholds={RELATIONS[0]: 0.5}), 3)
    everything, passes = passes_of(served, replace(item, relation_heads={}, relation_tails={}))
    expected = typed(everything, item)
    assert len(passes) > 3
    assert 0 < len(expected.relations) < len(everything.relations)
    assert extract_in_passes(served, item) == expected


def test_only_pairs_that_a_relation_may_hold_between_are_scored(engine: Any, monkeypatch: Any) -> None:
    served = engine("relex-span", **LIVELY)
    numbers: list[int] = []
    chunks = relation_head.RelationHead._chunks

    def counted(head: Any, pairs: int, relations: torch.Tensor) -> Any:
        numbers.append(pairs)
        return chunks(head, pairs, relations)

    def scored(item: Item) -> int:
        numbers.clear()
        extract_one(served, item)
        return sum(numbers)

    monkeypatch.setattr(relation_head.RelationHead, "_chunks", counted)
    fewer = 0
    for text in TEXTS:
        item = Item(text, named(LABELS), named(RELATIONS[:2]), flat_ner=False)
        labels = list(item.labels)
        predicted = [labels.index(entity.label) for entity in extract_one(served, item).entities]
        if len(set(predicted)) < 2:
            continue
        first, *_ = predicted
        other = next(label for label in predicted if label != first)
        one_way = {name: [first] for name in item.relations}, {name: [other] for name in item.relations}
        typed_item = replace(item, relation_heads=one_way[0], relation_tails=one_way[1])
        assert 0 < scored(typed_item) < scored(item)
        absent = {name: [len(labels)] for name in item.relations}
        with_absent = replace(item, labels={**item.labels, "nothing": "the"}, relation_heads=absent)
        if all(entity.label != "nothing" for entity in extract_one(served, with_absent).entities):
            assert scored(with_absent) == 0
        fewer += 1
    assert fewer
