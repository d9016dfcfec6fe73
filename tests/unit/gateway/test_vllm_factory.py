"""vllm-factory's `POST /pooling`: what a GLiNER plugin answers, and vLLM's errors."""

from __future__ import annotations

import asyncio
import time

import pytest

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


@pytest.mark.parametrize(
    ("content", "status", "kind", "param"),
    [
        (b"{", 400, "BadRequestError", None),
        (b"", 400, "BadRequestError", "data"),
        (b"[]", 400, "BadRequestError", None),
        (b'{"data": {"text": "a"}}', 400, "BadRequestError", "data.labels"),
        (b'{"data": {"text": "a", "labels": []}}', 400, "BadRequestError", "data.labels"),
        (b'{"data": {"text": "a", "labels": {"a": "b"}}}', 400, "BadRequestError", "data.labels"),
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
