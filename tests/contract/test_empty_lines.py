"""No entity and no value runs over an empty line, in every family; shorter candidates win in their place. The same
holds for what is inside a text that an allow list has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from checkpoints import FAMILIES, LABELS, RELATIONS, load_engine, named, tiny_checkpoint
from chunked_requests import extract_in_passes
from comparison import extract_one
from gliner2_checkpoints import tiny_gliner2

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.heads.overlap import resolve
from gliner_bento.engine.heads.predictions import Span, SpanTable
from gliner_bento.privacy.lists import Listed
from gliner_bento.tasks.extraction import Entity
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.structures import StructureField

GLINER2 = ("count_lstm", "count_lstm_v2", "count_lstm_moe", "boundary", "boundary_shared")
EMPTY_LINES = ("\n\n", "\r\n\r\n", "\n \t\n", "\r\r", "\n\n\n\n", "\u2029", "\n\u00a0\n")
SINGLE = ("\n", "\r\n", "\r", "  \n   ", "\t", "\u2028")
BEFORE, AFTER = "Ada Lovelace lives in Paris with Bill Gates", "Microsoft founded Apple in Tokyo city of Steve Jobs."


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., GLiNEREngine]:
    """The engine of a tiny model; padded: with padded batches, as on a GPU."""

    @cache
    def folder(name: str) -> Path:
        path = tmp_path_factory.mktemp(name)
        if name not in GLINER2:
            return tiny_checkpoint(path, name, seed=1)
        pytest.importorskip("gliner2")
        return tiny_gliner2(path, counting_layer=name)

    return cache(lambda name, padded=False: load_engine(folder(name), padded=padded))


def item_with(gap: str, **options: Any) -> Item:
    return Item(BEFORE + gap + AFTER, named(LABELS), **{"threshold": 0.1, "max_relations": 10**6, **options})


def crosses(item: Item, found: Any) -> bool:
    return bool(found.start < len(BEFORE) and found.end > len(item.text) - len(AFTER))


def greedy(entities: Sequence[Entity]) -> list[Entity]:
    """gliner's flat search over all candidates."""
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda one: -one.score):
        if all(entity.end <= other.start or other.end <= entity.start for other in kept):
            kept.append(entity)
    return sorted(kept, key=lambda one: one.start)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", [*FAMILIES, *GLINER2])
def test_candidates_across_an_empty_line_are_left_out(name: str, padded: bool, engine_of: Any) -> None:
    engine = engine_of(name, padded)
    every = extract_one(engine, item_with("\n\n", overlap="allow", multi_label=True, across_empty_lines=True))
    item = item_with("\n\n", overlap="allow", multi_label=True)
    assert extract_one(engine, item).entities == [one for one in every.entities if not crosses(item, one)]
    if name != "relex-span-gcn":
        assert any(crosses(item, one) for one in every.entities), "the model predicts some"
    for options in ({}, {"flat_ner": False}, {"multi_label": True}, {"overlap": "flat"}, {"overlap": "longest"}):
        answer = extract_one(engine, item_with("\n\n", **options))
        assert answer.entities
        assert not any(crosses(item, one) for one in answer.entities)


@pytest.mark.parametrize("name", ["span", "token", "bi-span"])
def test_the_rest_is_resolved_as_in_gliner(name: str, engine_of: Any) -> None:
    engine = engine_of(name)
    item = item_with("\n\n", overlap="allow", multi_label=True, across_empty_lines=True)
    candidates = [one for one in extract_one(engine, item).entities if not crosses(item, one)]
    assert extract_one(engine, item_with("\n\n")).entities == greedy(candidates)


def test_a_shorter_candidate_wins(engine_of: Any) -> None:
    """As in a signature above a company's name."""
    prepared = engine_of("span").prepare(Item("Ada Lovelace\n\nApple", named(LABELS[:1])))
    spans = SpanTable.of([Span(0, 1, 0, 0.6), Span(0, 2, 0, 0.99), Span(2, 2, 0, 0.7)])
    assert [tuple(span)[:2] for span in resolve(prepared, spans).entities] == [(0, 1), (2, 2)]
    allowed = replace(prepared, item=replace(prepared.item, across_empty_lines=True))
    assert [tuple(span)[:2] for span in resolve(allowed, spans).entities] == [(0, 2)]


@pytest.mark.parametrize("gap", [*EMPTY_LINES, *SINGLE])
def test_which_gaps_are_empty_lines(gap: str, engine_of: Any) -> None:
    item = item_with(gap, overlap="allow")
    found = [crosses(item, one) for one in extract_one(engine_of("span"), item).entities]
    assert any(found) == (gap in SINGLE)


@pytest.mark.parametrize("name", ["relex-span", "relex-token"])
def test_relations_are_between_the_entities_that_are_left(name: str, engine_of: Any) -> None:
    item = item_with("\n\n", relations=named(RELATIONS), relation_threshold=0.0, threshold=0.4)
    answer = extract_one(engine_of(name), item)
    assert answer.relations
    assert not any(crosses(item, end) for one in answer.relations for end in (one.head, one.tail))


@pytest.mark.parametrize("name", ["span", "token", "relex-span", "count_lstm", "boundary"])
def test_a_long_text_and_many_labels(name: str, engine_of: Any) -> None:
    labels = named([*LABELS, *(f"city {number}" for number in range(30))])
    item = replace(item_with("\n\n", overlap="allow"), labels=labels)
    long = replace(item, text="\n\n".join([item.text] * 6))
    answer = extract_in_passes(engine_of(name), long)
    assert answer.usage.passes > 1
    assert answer.entities
    assert not any("\n\n" in one.text for one in answer.entities)
    allowed = extract_in_passes(engine_of(name), replace(long, across_empty_lines=True))
    assert any("\n\n" in one.text for one in allowed.entities)


@pytest.mark.parametrize("name", GLINER2)
def test_values_and_ends_of_relations_of_gliner2(name: str, engine_of: Any) -> None:
    fields = {"name": StructureField("name", "list", 0.05), "kind": StructureField("kind", "list", 0.0, ("apple", "x"))}
    asked: dict[str, Any] = {"structures": {"r": fields}, "relations": named(RELATIONS), "relation_threshold": 0.0}
    item = item_with("\n\n", overlap="allow", **asked)
    answer = extract_one(engine_of(name), item)
    values = [value for instance in answer.structures["r"] for found in instance.values() for value in found]
    assert not any(crosses(item, value) for value in values if value.start is not None)
    assert not any(crosses(item, end) for one in answer.relations for end in (one.head, one.tail))
    assert any(value.start is not None for value in values)


ALLOWED = ["Ada Lovelace lives", "Bill Gates", "Tokyo city of Steve", "Steve Jobs."]


def allowed_in(text: str) -> Listed:
    return Listed((match.start(), match.end()) for value in ALLOWED for match in re.finditer(value, text))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", [*FAMILIES, *GLINER2])
def test_candidates_inside_what_is_allowed_are_left_out(name: str, padded: bool, engine_of: Any) -> None:
    engine = engine_of(name, padded)
    every = extract_one(engine, item_with(" ", overlap="allow", multi_label=True))
    listed = allowed_in(every_text := item_with(" ").text)
    rest = [one for one in every.entities if not listed.allows(one.start, one.end)]
    answer = extract_one(engine, item_with(" ", overlap="allow", multi_label=True, allowed=listed.allowed))
    assert answer.entities == rest
    assert 0 < len(rest) < len(every.entities)
    for options in ({}, {"flat_ner": False}, {"overlap": "flat"}, {"overlap": "longest"}):
        answer = extract_one(engine, item_with(" ", allowed=listed.allowed, **options))
        assert {(one.start, one.end) for one in answer.entities} <= {(one.start, one.end) for one in rest}
        assert answer.entities
    if name in ("span", "token", "bi-span"):
        assert extract_one(engine, item_with(" ", allowed=listed.allowed)).entities == greedy(rest)
    text = f"{every_text} " * 6
    long = Item(text, named([*LABELS, *(f"city {number}" for number in range(30))]), threshold=0.1, overlap="allow")
    if name in ("span", "token", "count_lstm", "boundary") and not padded:
        listed = allowed_in(text)
        whole = extract_in_passes(engine, long).entities
        assert extract_in_passes(engine, replace(long, allowed=listed.allowed)).entities == [
            one for one in whole if not listed.allows(one.start, one.end)
        ]


@pytest.mark.parametrize("name", ["relex-span", "relex-token"])
def test_what_is_allowed_is_no_end_of_a_relation(name: str, engine_of: Any) -> None:
    item = item_with(" ", relations=named(RELATIONS), relation_threshold=0.0, threshold=0.4)
    listed = allowed_in(item.text)
    answer = extract_one(engine_of(name), replace(item, allowed=listed.allowed))
    assert answer.relations
    assert not any(listed.allows(end.start, end.end) for one in answer.relations for end in (one.head, one.tail))
