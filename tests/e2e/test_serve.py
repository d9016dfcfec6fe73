"""A served bento, as its users meet it: over HTTP, with the clients that they have."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import bentoml
import httpx
import patient
import pytest
from gliner.serve import GLiNERClient
from gliner.serve.client import GLiNERClientError

from gliner_bento.client import Client

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]
RELATIONS = ["founded", "founded in", "headquartered in"]


def texts_of(answer: dict) -> set[str]:
    return {entity["text"] for entity in answer["entities"]}


def test_gliner_serves_client_predicts_entities(server):
    client = GLiNERClient(server)
    answer = client.predict(TEXT, LABELS)
    assert {"Bill Gates", "Microsoft"} <= texts_of(answer)
    assert set(answer) == {"entities"}
    assert set(answer["entities"][0]) == {"start", "end", "text", "label", "score"}


def test_gliner_serves_client_predicts_relations(server):
    answer = GLiNERClient(server).predict(TEXT, LABELS, relations=RELATIONS)
    relation = next(r for r in answer["relations"] if r["relation"] == "founded")
    assert (relation["head"]["text"], relation["tail"]["text"]) == ("Bill Gates", "Microsoft")
    assert set(relation["head"]) == {"start", "end", "text", "type", "entity_idx"}
    assert answer["entities"][relation["head"]["entity_idx"]]["text"] == "Bill Gates"


def test_gliner_serves_client_predicts_lists_with_labels_of_their_own(server):
    texts = [TEXT, "Ada Lovelace lived in London.", "nothing here"]
    answers = GLiNERClient(server).predict(texts, [["person"], {"WHO": "person"}, ["person"]])
    assert "Bill Gates" in texts_of(answers[0])
    assert ("Ada Lovelace", "WHO") in {(e["text"], e["label"]) for e in answers[1]["entities"]}
    assert answers[2] == {"entities": []}


def test_gliner_serves_client_predicts_asynchronously(server):
    client = GLiNERClient(server)

    async def both():
        return await client.predict_async(TEXT, LABELS), await client.predict_async([TEXT] * 8, LABELS)

    single, several = asyncio.run(both())
    assert [texts_of(answer) for answer in several] == [texts_of(single)] * 8


def test_gliner_serves_client_asks_for_the_adapter_cache(server):
    client = GLiNERClient(server)
    assert client.adapter_cache_status() == {"enabled": False, "base_adapter_id": "__base__"}
    assert client.is_adapter_cached("tenant-a") is False


def test_gliner_serves_client_sees_errors_as_its_own(server):
    with pytest.raises(GLiNERClientError, match="404"):
        GLiNERClient(server).predict(TEXT, LABELS, adapter_id="nobody")


def test_bentomls_clients_take_typed_arguments(server):
    with bentoml.SyncHTTPClient(server) as client:
        answer = client.extract(text=TEXT, labels=LABELS, relations=RELATIONS)
        assert "Bill Gates" in texts_of(answer)
        batch = client.extract_batch(texts=[TEXT, ""], labels=LABELS)
        assert batch["results"][1]["result"]["entities"] == []

    async def ask():
        async with bentoml.AsyncHTTPClient(server) as client:
            return await client.extract(text=TEXT, labels=LABELS, threshold=0.4)

    assert "Bill Gates" in texts_of(asyncio.run(ask()))


def test_our_client_over_a_socket(server):
    with Client(server) as client:
        answer = client.extract(TEXT, LABELS, relations=RELATIONS)
        assert ("Bill Gates", "founded", "Microsoft") in {
            (r.head.text, r.relation, r.tail.text) for r in answer.relations
        }
        assert client.extract_batch([TEXT], LABELS).results[0].result.entities


def test_nothing_is_lost_under_load(server):
    """Several times the 100 requests after which BentoML's client between services closes its connections."""
    bodies = [{"text": f"{TEXT} Number {i}.", "labels": LABELS[: 1 + i % 4]} for i in range(600)]
    limits = httpx.Limits(max_connections=64)
    with httpx.Client(base_url=server, timeout=120, limits=limits) as client, ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda body: client.post("/v1/extract", json=body), bodies))
    assert [answer.status_code for answer in answers] == [200] * len(bodies)
    for body, answer in zip(bodies, answers, strict=True):
        assert "Bill Gates" in texts_of(answer.json())
        assert {entity["label"] for entity in answer.json()["entities"]} <= set(body["labels"])


def test_both_processes_metrics_are_in_one_place(server):
    patient.post(f"{server}/v1/extract", json={"text": TEXT, "labels": LABELS}).raise_for_status()
    text = patient.get(f"{server}/metrics").text
    assert 'gliner_items_total{model="demo",outcome="completed"}' in text
    assert 'gliner_http_requests_total{method="POST",route="/v1/extract",status="200"}' in text


def test_an_unknown_route_has_the_one_error_body(server):
    response = patient.get(f"{server}/v2/extract")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
