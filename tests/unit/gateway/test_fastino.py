"""Fastino's `POST /gliner-2`, with the bodies that gliner2's client sends."""

from __future__ import annotations

import asyncio

import pytest

from gliner_bento.gateway.compat.fastino import FastinoSchema, _result, _ValueFormat
from gliner_bento.tasks.extraction import Entity, Extraction

BODY = {
    "task": "extract_entities",
    "text": "Ada met Charles",
    "schema": ["person"],
    "threshold": 0.5,
    "include_confidence": False,
    "include_spans": False,
    "format_results": True,
}
ADA, CHARLES = {"text": "Ada", "confidence": 1.0}, {"text": "Charles", "confidence": 1.0}


def ask(client, **changes):
    return asyncio.run(client.request("POST", "/gliner-2", json=BODY | changes))


def result(client, **changes):
    response = ask(client, **changes)
    assert response.status_code == 200, response.text
    return response.json()["result"]


def test_entities_are_grouped_by_type_and_every_type_is_present(client):
    assert result(client, schema=["person", "city"]) == {"entities": {"person": ["Ada", "Charles"], "city": []}}


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        ({"include_confidence": True}, ADA),
        ({"include_spans": True}, {"text": "Ada", "start": 0, "end": 3}),
        ({"include_confidence": True, "include_spans": True}, {**ADA, "start": 0, "end": 3}),
    ],
)
def test_flags_add_confidences_and_spans(client, flags, first):
    assert result(client, **flags)["entities"]["person"][0] == first
    relations = result(client, task="schema", schema={"relations": ["met"]}, **flags)["relation_extraction"]
    assert relations["met"][0]["head"] == first


def test_a_list_of_texts_gets_a_list(client):
    texts = ["Ada met Charles", "nobody"]
    assert result(client, text=texts) == [{"entities": {"person": ["Ada", "Charles"]}}, {"entities": {"person": []}}]


def test_a_schema_sets_descriptions_thresholds_and_single_values(client, replica):
    schema = {
        "entities": {
            "person": {"description": "people", "threshold": 0.3, "dtype": "str"},
            "city": "a town",
            "x": {"returned": False},
        },
        "entity_dtype": "list",
        "entity_threshold": 0.2,
        "relations": {"met": {"description": "has met", "threshold": 0.7}, "left": "went away from"},
        "relation_threshold": 0.4,
    }
    assert result(client, task="schema", schema=schema) == {
        "entities": {"person": "Ada", "city": []},
        "relation_extraction": {"met": [["Ada", "Charles"]], "left": []},
    }
    (item,) = replica.calls[0][0]
    assert item.labels == {"person": "people", "city": "a town", "x": "x"}
    assert (item.label_thresholds, item.decoys) == ({"person": 0.3}, ["x"])
    assert (item.relations, item.relation_thresholds) == ({"met": "has met", "left": "went away from"}, {"met": 0.7})
    assert (item.threshold, item.relation_threshold) == (0.2, 0.4)


def test_relations_alone_are_between_the_configured_types(client, replica, options):
    schema = {"relations": ["met"], "entity_dtype": "list"}
    assert result(client, task="schema", schema=schema) == {"relation_extraction": {"met": [["Ada", "Charles"]]}}
    (item,) = replica.calls[0][0]
    assert (tuple(item.labels), item.relation_threshold) == (options.fastino_labels, 0.5)


def test_repetitions_count_once_unless_spans_are_asked_for():
    found = Extraction([Entity(0, 3, "ada", "x", 0.6), Entity(4, 7, "Bob", "x", 0.7), Entity(8, 11, "Ada", "x", 0.9)])
    schema = FastinoSchema(entities=["x"])
    texts = _result(found, schema, _ValueFormat(confidence=False, spans=False))["entities"]["x"]
    assert list(texts) == ["Ada", "Bob"]
    spans = _result(found, schema, _ValueFormat(confidence=False, spans=True))["entities"]["x"]
    assert [one["start"] for one in spans] == [8, 4, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "classify_text", "schema": ["a", "b"]}, "schema: Input should be a list of entity types"),
        ({"task": "classify_text", "schema": {}}, "schema.categories: Field required"),
        ({"task": "classify_text", "schema": {"categories": ["a", "a"]}}, "classifications.classification: 'a' is"),
        ({"task": "schema", "schema": {"classifications": {"tone": {"labels": ["a"], "x": 1}}}}, "schema.classificat"),
        ({"task": "extract_json", "schema": {"p": ["::str"]}}, "schema.structures.p.0: String should match pattern"),
        ({"task": "extract_json", "schema": {"p": [{"name": "n", "x": 1}]}}, "schema.structures.p.0.x: unknown field"),
        ({"task": "extract_json", "schema": {"p": ["n", "n::str"]}}, "schema.structures.p: the field 'n' is repeated"),
        ({"task": "extract_json", "schema": ["p"]}, "schema.structures: Input should be"),
        ({"task": "schema", "schema": {}}, "schema: needs entities, relations, classifications or structures"),
        ({"schema": []}, "schema: needs entities, relations, classifications or structures"),
        ({"schema": {"entities": ["a"]}}, "schema: Input should be a list of entity types"),
        ({"schema": [""]}, "schema.0: String should have at least 1 character"),
        ({"task": "schema", "schema": {"entites": ["a"]}}, "schema.entites: unknown field (did you mean 'entities'?)"),
        ({"shema": ["a"]}, "shema: unknown field (did you mean 'schema'?)"),
        ({"task": "schema", "schema": {"entities": {"a": {"treshold": 1}}}}, "schema.entities.a.treshold: unknown"),
        ({"threshold": 2}, "threshold: Input should be less than or equal to 1"),
        ({"format_results": False}, "format_results: false is not supported"),
        ({"task": "other"}, "task: Input should be 'extract_entities', 'classify_text', 'extract_json' or 'schema'"),
        ({"task": ["schema"]}, "task: Input should be 'extract_entities', 'classify_text', 'extract_json' or 'schema'"),
        ({"text": 1}, "text: "),
    ],
)
def test_what_is_wrong_is_named(client, changes, message):
    response = ask(client, **changes)
    assert response.status_code == 422
    assert response.json()["detail"].startswith(message)


def test_a_text_that_fails_fails_the_request(client, options):
    response = ask(client, text=["Ada", "x" * (options.max_text_chars + 1)])
    assert (response.status_code, set(response.json())) == (413, {"detail"})


WORDS = "good bad good yes"  # the replica scores a label by its share of the words


@pytest.mark.parametrize(
    ("asked", "classes"),
    [
        (["good", "bad"], "good"),
        ({"good": "good", "bad": "no good"}, "good"),
        ({"labels": ["bad", "good"], "multi_label": True, "cls_threshold": 0.1}, ["bad", "good"]),
        ({"labels": ["bad", "good"], "multi_label": True, "cls_threshold": 0.1, "top_k": 2}, ["good", "bad"]),
        ({"labels": ["bad", "good"], "multi_label": True, "cls_threshold": 0.9}, ["good"]),
    ],
)
def test_texts_are_classified_by_gliner2s_rules(client, asked, classes):
    schema = {"classifications": {"tone": asked}}
    assert result(client, task="schema", text=WORDS, schema=schema) == {"tone": classes}
    if not isinstance(asked, dict) or "labels" not in asked:
        answer = result(
            client, task="classify_text", text=[WORDS], schema={"categories": asked}, include_confidence=True
        )
        assert answer == [{"classification": {"label": "good", "confidence": 0.5}}]


def test_one_schema_may_have_all_tasks(client):
    schema = {"entities": ["person"], "relations": ["met"], "classifications": {"tone": ["met", "Ada"]}}
    answer = result(client, task="schema", schema=schema)
    assert list(answer) == ["entities", "relation_extraction", "tone"]
