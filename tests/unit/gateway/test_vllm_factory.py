"""vllm-factory's `POST /pooling`: what a GLiNER plugin answers, and vLLM's errors."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from doubles.memory_replica import INFO, MemoryReplica

DATA = {"text": "Ada met Charles", "labels": ["person"]}


def pooling(client, **kwargs):
    return asyncio.run(client.post("/pooling", **kwargs))


def test_the_answer_is_vllms_with_a_list_of_entities(client):
    body = {"model": "/models/gliner", "task": "plugin", "data": DATA, "user": "a"}
    response = pooling(client, json=body, headers={"X-Request-ID": "mine"})
    answer = response.json()
    assert list(answer) == ["request_id", "created_at", "data"]
    assert answer["request_id"] == "mine"
    assert 0 <= time.time() - answer["created_at"] < 600
    assert answer["data"][0] == {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 1.0}
    assert response.headers["x-vllm-factory-schema-size"] == "1"


def test_its_defaults_are_the_plugins_and_not_ours(client, replica, options):
    pooling(client, json={"data": DATA})
    (item,) = replica.calls[0][0]
    assert (item.threshold, item.flat_ner, item.multi_label) == (0.5, False, False)
    assert options.default_threshold != 0.5
    pooling(client, json={"data": DATA | {"threshold": 0.2, "flat_ner": True, "multi_label": True}})
    (item,) = replica.calls[1][0]
    assert (item.threshold, item.flat_ner, item.multi_label) == (0.2, True, True)


def test_what_its_documentation_shows_and_its_code_ignores_is_ignored(client):
    assert pooling(client, json={"data": DATA | {"candidate_labels": ["x"]}}).status_code == 200


SCHEMA = {"entities": {"person": {"description": "a name", "threshold": 0.7}, "place": ""}, "relations": ["met"]}


@pytest.mark.parametrize(
    ("flags", "entity", "end"),
    [
        ({}, "Ada", "Ada"),
        ({"include_confidence": True}, {"text": "Ada", "confidence": 1.0}, {"text": "Ada", "confidence": 1.0}),
        ({"include_spans": True}, {"text": "Ada", "start": 0, "end": 3}, {"text": "Ada", "start": 0, "end": 3}),
    ],
    ids=str,
)
def test_a_schema_is_answered_as_the_gliner2_plugin_answers(client, flags, entity, end):
    answer = pooling(client, json={"data": {"text": DATA["text"], "schema": SCHEMA, "adapter": "a/b", **flags}}).json()
    assert list(answer["data"]) == ["entities", "relation_extraction", "adapter"]
    assert answer["data"]["entities"]["person"][0] == entity
    assert answer["data"]["entities"].keys() == SCHEMA["entities"].keys()
    assert answer["data"]["relation_extraction"]["met"][0]["head"] == end


def test_a_schema_has_thresholds_and_descriptions_of_its_own(client, replica):
    data = {"text": DATA["text"], "schema": SCHEMA, "threshold": 0.2, "labels": ["ignored"]}
    response = pooling(client, json={"data": data})
    (item,) = replica.calls[0][0]
    assert item.labels == {"person": "a name", "place": "place"}
    assert (item.label_thresholds, item.threshold, item.relation_threshold) == ({"person": 0.7}, 0.2, 0.2)
    assert (item.flat_ner, item.long_text, list(item.relations)) == (True, "window", ["met"])
    assert response.headers["x-vllm-factory-schema-size"] == "3"
    pooling(client, json={"data": DATA | {"truncate_overflow_text": True}})
    assert replica.calls[1][0][0].long_text == "truncate"


def test_relations_alone_are_between_the_configured_types(client, replica, options):
    data = {"text": DATA["text"], "schema": {"relations": ["met"]}}
    answer = pooling(client, json={"data": data}).json()["data"]
    assert list(replica.calls[0][0][0].labels) == list(options.fastino_labels)
    assert list(answer) == ["relation_extraction"]
    assert answer["relation_extraction"]["met"][0] == {"head": "Ada", "tail": "Charles"}


@pytest.mark.parametrize(
    ("data", "param"),
    [
        ({"schema": {}}, "data.schema.entities"),
        ({"schema": {"entities": []}}, "data.schema.entities"),
        ({"schema": {"entities": ["a"], "classifications": [{"task": "t"}]}}, "data.schema.classifications.0.labels"),
        ({"schema": {"entities": ["a"], "structures": {"s": {}}}}, "data.schema.structures.s.fields"),
        ({"schema": {"structures": {"s": {"fields": [{"name": "a"}, {"name": "a"}]}}}}, "data.schema.structures.s"),
        ({"schema": {"classifications": [{"task": "t", "labels": ["a"]}] * 2}}, "data.schema.classifications"),
        ({"schema": {"entities": {"a": {"threshold": 2}}}}, "data.schema.entities.a.threshold"),
        ({"schema": {"entities": {"a": {"returned": 0}}}}, "data.schema.entities.a.returned"),
        ({"schema": {"relations": {"a": {"returned": False}}}}, "data.schema.relations.a.returned"),
        ({"schema": {"entities": ["a"]}, "include_spans": "yes"}, "data.include_spans"),
        ({"schema": {"entities": ["a"]}, "adapter": "no spaces"}, "data.adapter"),
        ({"schema": {"entity": ["a"]}}, "data.schema.entity"),
    ],
)
def test_a_wrong_schema_is_named(client, data, param):
    response = pooling(client, json={"data": {"text": "a", **data}})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("content", "status", "kind", "param"),
    [
        (b"{", 400, "BadRequestError", None),
        (b"", 400, "BadRequestError", "data"),
        (b"[]", 400, "BadRequestError", None),
        (b'{"data": {"text": "a"}}', 400, "BadRequestError", "data.labels"),
        (b'{"data": {"text": "a", "labels": []}}', 400, "BadRequestError", "data.labels"),
        (b'{"data": {"text": "a", "labels": "b"}}', 400, "BadRequestError", "data.labels"),
        (b'{"data": {"text": ["a"], "labels": ["b"]}}', 400, "BadRequestError", "data.text"),
        (b'{"data": {"text": "a", "labels": ["b"], "thresold": 1}}', 400, "BadRequestError", "data.thresold"),
        (b'{"data": {"text": "a", "labels": ["b"], "threshold": 2}}', 400, "BadRequestError", "data.threshold"),
        (b'{"data": {"text": "a", "labels": ["b"], "flat_ner": 1}}', 400, "BadRequestError", "data.flat_ner"),
        (b'{"data": {"text": "' + b"a" * 101 + b'", "labels": ["b"]}}', 413, "BadRequestError", "text"),
    ],
)
def test_errors_are_vllms(client, content, status, kind, param):
    response = pooling(client, content=content, headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"], error["param"]) == (status, status, kind, param)
    assert error["message"]


@pytest.mark.parametrize(
    "labels", [["person"], {"person": ""}, {"person": {"description": "a name", "threshold": 0.7}}]
)
def test_a_gliner2_model_answers_as_its_plugin_without_a_schema(serving, labels):
    client = serving(MemoryReplica(model=replace(INFO, family="GLiNER2 span")))
    answer = pooling(client, json={"data": DATA | {"labels": labels, "include_confidence": False}}).json()
    assert answer["data"] == {"entities": {"person": ["Ada", "Charles"]}}
    plain = pooling(client, json={"data": DATA | {"labels": labels}}).json()
    assert plain["data"] == answer["data"]


def test_a_described_label_is_no_schema_for_other_models(client):
    answer = pooling(client, json={"data": DATA | {"labels": {"person": "a name"}}}).json()
    assert [entity["text"] for entity in answer["data"]] == ["Ada", "Charles"]


def test_gliner_haystacks_request_is_answered_and_other_runtimes_are_named(client):
    data = {"text": DATA["text"], "schema": {"entities": {"person": ""}}, "runtime": "classic", "threshold": 0.5}
    sent = {"model": "gliner2", "data": data | {"include_confidence": True, "include_spans": True}}
    entities = pooling(client, json=sent).json()["data"]["entities"]
    assert entities["person"][0] == {"text": "Ada", "confidence": 1.0, "start": 0, "end": 3}
    for runtime in ("joint_ie", "constrained_classification"):
        refused = pooling(client, json={"data": data | {"runtime": runtime}})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "data.runtime")
