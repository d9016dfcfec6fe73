"""More labels than one pass takes: each group gives gliner's results, and they are merged by its rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from checkpoints import LABELS, POSITIONS, RELATIONS, TEXTS, load_engine, named
from chunked_requests import LIVELY, extract_in_passes, long_text, many, passes_of
from comparison import assert_same, extract_one, gliner_extraction

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.errors import InvalidField, TooLarge
from gliner_bento.tasks.extraction import ExtractionItem as Item


@pytest.mark.parametrize("family", ["span", "token", "relex-span", "relex-token"])
def test_each_label_group_gives_gliners_results(family: str, engine: Any, reference: Any) -> None:
    served, model = engine(family, **LIVELY), reference(family, **LIVELY)
    item = Item(TEXTS[1], many(70), threshold=0.3)
    answer, passes = passes_of(served, item)
    assert answer.usage.label_groups == len(passes) >= 3
    assert {name for one in passes for name in one.item.labels} == set(item.labels)
    assert max(len(one.item.labels) for one in passes) <= 25
    found = []
    for one in passes:
        assert list(one.item.labels) == sorted(one.item.labels)
        group = served.decode(served.forward(served.collate([one]), 1))[0]
        assert_same(group, gliner_extraction(model, one.item))
        found += [*group.entities, *group.suppressed]
    # gliner's own rule, over the entities of all groups
    taken: list[Any] = []
    for entity in sorted(sorted(found, key=lambda e: (e.start, e.end, e.label)), key=lambda e: -e.score):
        if all(entity.end <= other.start or other.end <= entity.start for other in taken):
            taken.append(entity)
    assert answer.entities == sorted(taken, key=lambda entity: entity.start)


def test_groups_do_not_depend_on_the_order_of_labels(engine: Any) -> None:
    served = engine("relex-span", **LIVELY)
    labels, relations = many(60), named(RELATIONS)
    item = Item(long_text(2, 8), labels, relations, threshold=0.1, relation_threshold=0.1)
    shuffled = dict(random.Random(1).sample(sorted(labels.items()), len(labels)))
    answer = extract_in_passes(served, item)
    assert answer.relations
    assert extract_in_passes(served, replace(item, labels=shuffled)) == answer


def test_relations_across_groups_are_found(engine: Any, reference: Any) -> None:
    """Between all entities of a window, also those that gliner would not find again in the relation pass."""
    served, model = engine("relex-span", **LIVELY), reference("relex-span", **LIVELY)
    item = Item(long_text(2, 8), many(60), named(RELATIONS), threshold=0.1, relation_threshold=0.1)
    answer, passes = passes_of(served, item)
    assert answer.usage.label_groups > 1
    assert answer.usage.relation_groups == 1
    for_relations = [one for one in passes if one.item.relations]
    assert for_relations
    stand = {(entity.start, entity.end) for entity in answer.entities}
    expected = set()
    for one in for_relations:
        start, end = one.payload.words[0][0], one.payload.words[-1][1]
        found = gliner_extraction(model, replace(one.item, text=item.text[start:end]))
        for relation in found.relations:
            spans = [(end.start + start, end.end + start) for end in (relation.head, relation.tail)]
            if stand.issuperset(spans):
                expected.add((relation.relation, *spans))
    ours = {(r.relation, *((end.start, end.end) for end in (r.head, r.tail))) for r in answer.relations}
    assert ours >= expected
    assert expected


def test_every_two_predicted_labels_share_a_relation_pass(checkpoint: Any) -> None:
    served = load_engine(checkpoint("relex-span", **LIVELY), max_labels_per_pass=4)
    item = Item(TEXTS[4], many(30), named(RELATIONS), threshold=0.1, relation_threshold=0.0, flat_ner=False)
    _, passes = passes_of(served, item)
    held = {e.label for one in passes if not one.item.relations for e in entities_of(served, one)}
    together = [one.item.labels for one in passes if one.item.relations]
    pairs = {frozenset(pair) for labels in together for pair in product(labels, labels)}
    assert len(held) > 4
    assert all(frozenset((a, b)) in pairs for a in held for b in held)
    assert all(len(one.item.labels) <= 4 for one in passes)


def entities_of(served: GLiNEREngine, one: Prepared) -> Sequence[Any]:
    return served.decode(served.forward(served.collate([one]), 1))[0].entities


def test_many_relations_are_grouped(engine: Any) -> None:
    served = engine("relex-span", **LIVELY)
    relations = {f"r{number}": f"{name} {number}" for number, name in enumerate(list(RELATIONS) * 8)}
    answer, passes = passes_of(served, Item(TEXTS[1], named(LABELS[:3]), relations, threshold=0.05))
    assert answer.usage.relation_groups >= 2
    assert {name for one in passes for name in one.item.relations} == set(relations)


def test_a_bi_encoder_takes_all_labels_in_one_pass(engine: Any, reference: Any) -> None:
    served, model = engine("bi-span", **LIVELY), reference("bi-span", **LIVELY)
    item = Item(TEXTS[1], many(200), threshold=0.3)
    answer = extract_one(served, item)
    assert_same(answer, gliner_extraction(model, item))
    assert (answer.usage.windows, answer.usage.label_groups) == (1, 1)


def test_a_label_longer_than_a_pass_is_named(engine: Any) -> None:
    endless = "person " * POSITIONS
    with pytest.raises(InvalidField, match=r"'person person .*…' has 129 tokens") as raised:
        engine("span", **LIVELY).prepare(Item("Paris", named(["city", endless]) | many(5)))
    assert raised.value.param == "labels"
    with pytest.raises(InvalidField, match="'x' has 129 tokens") as raised:
        engine("relex-span", **LIVELY).prepare(Item("Paris", named(LABELS), {"x": endless}))
    assert raised.value.param == "relations"


@pytest.mark.parametrize("long_text_option", ["truncate", "reject"])
def test_many_labels_with_truncate_and_reject(long_text_option: Any, engine: Any) -> None:
    served = engine("span", **LIVELY)
    item = Item(TEXTS[1], many(70), threshold=0.3, long_text=long_text_option)
    assert extract_in_passes(served, item) == extract_in_passes(served, replace(item, long_text="window"))
    item = replace(item, text=long_text(4))
    if long_text_option == "reject":
        with pytest.raises(TooLarge):
            served.prepare(item)
        return
    answer, passes = passes_of(served, item)
    assert answer.usage.windows == 1
    assert answer.truncated_at == passes[0].payload.words[-1][1] < len(item.text)
