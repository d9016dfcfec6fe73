"""The rest of what the server answers: model card, probes, metrics, documents, aborts, and its clients."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
import subprocess
import sys
from collections import Counter

import httpx
import pytest
from openapi_spec_validator import validate

from gliner_bento.client import AsyncClient
from gliner_bento.errors import AdapterNotFound, DeadlineExceeded, InvalidField
from gliner_bento.gateway.app import INDEX_PAGE

JSON_TYPE = {"content-type": "application/json"}
BODY = {"text": "Ada Lovelace lived in London.", "labels": ["person", "city"]}


def test_the_model_card_describes_what_is_served(service):
    card = service.request("GET", "/v1/model").json()
    assert card["family"] == "UniEncoderSpanRelexGLiNER"
    assert card["supports_relations"] is True
    assert card["languages"] == ["en"]
    assert (card["device"], card["dtype"], card["max_text_chars"]) == ("cpu", "float32", 20000)
    assert card["fingerprint"] == "00486c57fd517562"  # another one hides the adapters that users have stored
    assert card["self_test"] == "passed"


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz"])
def test_probes(service, path):
    assert service.request("GET", path).status_code == 200


def test_metrics_count_what_was_run(service):
    service.extract(**BODY)
    text = service.request("GET", "/metrics").text
    for name in (
        "gliner_items_total",
        "gliner_batch_items_bucket",
        "gliner_tokens_total",
        "gliner_stage_seconds",
    ):
        assert name in text
    assert 'gliner_items_total{model="demo",outcome="completed"}' in text
    assert 'gliner_self_test{model="demo",outcome="passed"} 1.0' in text


def test_unknown_paths_and_ids_make_no_series(service):
    """100,239 series after 5,000 paths, with BentoML's metrics."""

    def names() -> set[str]:
        lines = service.request("GET", "/metrics").text.splitlines()
        return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}

    async def burst(client: httpx.AsyncClient):
        for number in range(200):
            await client.get(f"/nowhere/{number}")
            await client.post(f"/v1/requests/{number}/abort")

    service.gather(lambda client: client.get("/nowhere"), lambda client: client.post("/v1/requests/r/abort"))
    service.request("GET", "/metrics")
    before = names()
    service.gather(burst)
    assert names() == before
    own = [name for name in before if 'model="demo"' in name or 'model="' not in name]  # other tests have other models
    routes = Counter(re.findall(r'route="(.*?)"', " ".join(own)))  # of all that other tests have called, too
    assert len(own) - routes.total() <= 200
    assert max(routes.values()) <= 40
    assert not any(name.startswith("bentoml_") for name in before)


def test_durations_are_of_requests_that_the_replica_has_worked_on(service):
    def counted() -> list[float]:
        samples = dict(line.rsplit(" ", 1) for line in service.request("GET", "/metrics").text.splitlines())
        name = "gliner_http_request_seconds_count"
        return [float(samples.get(f'{name}{{route="{path}"}}', 0)) for path in ("/v1/extract", "/v1/model", "/livez")]

    before = counted()
    service.extract(**BODY)
    service.request("POST", "/v1/extract", json={"text": "Paris"})
    service.request("GET", "/v1/model")
    assert [after - earlier for after, earlier in zip(counted(), before, strict=True)] == [1, 0, 0]


def test_the_status_shows_what_was_run(service):
    service.extract(**BODY)
    status = service.request("GET", "/v1/status").json()
    assert (status["ready"], status["model"], status["adapters"]) == (True, "demo", None)
    assert status["lanes"]["total"] == status["lanes"]["busy"] + status["lanes"]["idle"] >= 1
    assert status["throughput"]["tokens_per_s"] > 0


def test_a_request_is_one_line_in_the_log(service, caplog):
    caplog.set_level("INFO")
    service.request("POST", "/v1/extract", json=BODY, headers={"X-Request-ID": "logged"})
    (line,) = [record.fields for record in caplog.records if record.name == "gliner_bento.access"]
    assert (line["request_id"], line["route"], line["status"], line["items"]) == ("logged", "/v1/extract", 200, 1)


def test_the_openapi_document_validates_and_lists_every_route(service):
    document = service.request("GET", "/docs.json").json()
    validate(document)
    assert {
        "/v1/extract",
        "/v1/extract/batch",
        "/v1/extract/stream",
        "/v1/model",
        "/gliner",
        "/gliner/adapter-cache",
    } <= set(document["paths"])


def test_the_examples_of_the_openapi_document_are_answered(service):
    """Swagger's "Try it out" sends them. Paths with parameters have tests of their own."""
    document = service.request("GET", "/docs.json").json()
    tried, headers = 0, {"Host": "localhost", "Accept": "application/json, text/event-stream"}  # as /mcp wants them
    for path, operations in document["paths"].items():
        body = operations.get("post", {}).get("requestBody", {}).get("content", {})
        if "{" not in path and "application/json" in body:
            example = body["application/json"]["example"]
            response = service.request("POST", path, json=example, headers=headers)
            # the bundled model classifies no texts
            if path in {"/pipeline/zero-shot-classification", "/tei/predict", "/v1/classify", "/gliclass"}:
                assert "'demo' does not support the task classifications" in response.text
            elif path == "/v1/models":  # needs `model_root`
                assert response.json()["error"]["param"] == "source"
            else:
                assert response.status_code in (200, 201), path
            tried += 1
    assert tried >= 14  # one more with the package mcp


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/batch", "/gliner"])
def test_a_model_that_the_url_names_must_be_served(service, path):
    body = {"texts" if "batch" in path else "text": ["Ada"] if "batch" in path else "Ada", "labels": ["person"]}
    for url in (f"{path}?model=none", f"/models/none{path}"):
        response = service.request("POST", url, json=body)
        assert response.status_code == 404, url
        assert "no model 'none'; there are demo" in response.text
    for url in (f"{path}?model=demo", f"/models/demo{path}"):
        assert service.request("POST", url, json=body).status_code == 200


@pytest.mark.parametrize("batch", [False, True])
def test_a_byte_order_mark_and_half_of_a_surrogate_pair_are_read(service, batch):
    """BentoML's parser of JSON, which reads the body of these routes in a bento, takes neither."""
    text = "Ada Lovelace \ud83d lived in London \U0001f600."
    body = {"labels": BODY["labels"], **({"texts": [text]} if batch else {"text": text})}
    content = codecs.BOM_UTF8 + json.dumps(body).encode()
    response = service.request("POST", "/v1/extract" + "/batch" * batch, content=content, headers=JSON_TYPE)
    assert response.status_code == 200, response.text
    result = response.json()["results"][0]["result"] if batch else response.json()
    assert [entity["text"] for entity in result["entities"]] == ["Ada Lovelace", "London"]


@pytest.mark.parametrize("path", ["/v1/extract/", "/v1/extract/batch/", "/v1/extract/stream/", "/gliner/"])
def test_a_slash_at_the_end_is_served(service, path):
    body = {"texts": [BODY["text"]], "labels": BODY["labels"]} if "batch" in path else BODY
    assert service.request("POST", path, json=body).status_code == 200


@pytest.mark.parametrize("path", ["/v1/model/", "/docs.json/", "/livez/", "/readyz/", "/metrics/"])
def test_a_page_is_served_with_a_slash_at_the_end(service, path):
    assert service.request("GET", path).status_code == 200
    assert path not in service.request("GET", "/docs.json").json()["paths"]


@pytest.mark.parametrize("path", ["/nowhere/", "/v1/extract/nowhere/"])
def test_an_unknown_path_is_not_found_with_a_slash_either(service, path):
    response = service.request("GET", path)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


def test_a_folder_of_files_is_no_endless_redirect(service):
    assert service.request("GET", "/static_content", follow_redirects=True).status_code == 404


def test_the_index_page_shows_the_document(service):
    page = service.request("GET", "/")
    assert "text/html" in page.headers["content-type"]
    assert "./docs.json" in page.text
    assert "googletagmanager" not in page.text


@pytest.mark.parametrize("asset", re.findall(r'"\./(static_content/[^"]+)"', INDEX_PAGE.read_text(encoding="utf-8")))
def test_what_the_index_page_loads_is_there(service, asset):
    response = service.request("GET", f"/{asset}")
    assert response.status_code == 200
    assert response.content


def test_the_id_in_the_body_is_the_requests_id(service):
    good = service.request("POST", "/v1/extract", json=BODY | {"request_id": "b"}, headers={"X-Request-ID": "h"})
    assert good.json()["request_id"] == good.headers["x-request-id"] == "b"
    bad = service.extract(**BODY, request_id="b", adapter_id="nobody")
    assert bad.json()["error"]["request_id"] == bad.headers["x-request-id"] == "b"


def test_an_impossible_deadline_is_504(service):
    response = service.extract(**BODY, timeout_ms=0.001)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_abort_stops_a_request_that_waits(service):
    """Enough work waits before the victim that the abort arrives first."""
    crowd = {"texts": [BODY["text"] * 20] * 60, "labels": BODY["labels"]}
    victim = BODY | {"request_id": "victim", "priority": 1000}

    async def scene(client: httpx.AsyncClient):
        work = asyncio.create_task(client.post("/v1/extract/batch", json=crowd))
        while not (await client.get("/v1/status")).json()["queue"]["waiting_items"]:
            assert not work.done()
        waiting = asyncio.create_task(client.post("/v1/extract", json=victim))
        while not (await client.post("/v1/requests/victim/abort")).json()["aborted"]:
            assert not waiting.done(), "the victim was answered before it could be aborted"
        return await waiting, await work

    (aborted, crowd_answer), *_ = service.gather(scene)
    assert (aborted.status_code, aborted.json()["error"]["code"]) == (499, "aborted")
    assert all(result["result"] for result in crowd_answer.json()["results"])
    assert service.request("POST", "/v1/requests/victim/abort").json()["aborted"] is False


def test_our_client(service):
    client = AsyncClient("http://service")
    client._http = service.client

    async def scene(_):
        answer = await client.extract(**BODY, request_id="mine")
        batch = await client.extract_batch([BODY["text"], ""], BODY["labels"])
        card = await client.model()
        assert (await client.status()).ready
        return answer, batch, card, await client.abort("nobody")

    (answer, batch, card, abort), *_ = service.gather(scene)
    assert ("Ada Lovelace", "person") in {(e.text, e.label) for e in answer.entities}
    assert answer.request_id == "mine"
    assert batch.results[1].result.entities == []
    assert card.supports_relations
    assert abort.aborted is False


@pytest.mark.parametrize(
    ("options", "error", "param"),
    [
        ({"threshold": 7}, InvalidField, "threshold"),
        ({"adapter_id": "nobody"}, AdapterNotFound, "adapter_id"),
        ({"timeout_ms": 0.001}, DeadlineExceeded, None),
    ],
)
def test_our_client_raises_what_the_server_meant(service, options, error, param):
    client = AsyncClient("http://service")
    client._http = service.client

    async def scene(_):
        with pytest.raises(error) as caught:
            await client.extract(**BODY, **options)
        return caught.value

    raised, *_ = service.gather(scene)
    assert raised.param == param


def test_nothing_of_a_request_reaches_the_log(service, caplog):
    service.request("POST", "/v1/extract", json={"text": ["a secret"], "labels": ["x"]})
    service.request("POST", "/gliner", json={"text": ["a secret"], "labels": ["x"]})
    service.extract(text="a secret", labels=["x"], adapter_id="nobody")
    assert "a secret" not in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_the_client_package_needs_no_model_library():
    """In a process of its own: here, torch has long been loaded."""
    code = (
        "import sys, json, gliner_bento.client, gliner_bento.engine.base;"
        "print(json.dumps([m for m in ('torch', 'bentoml', 'gliner', 'transformers') if m in sys.modules]))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(loaded) == []


def test_the_gateway_loads_no_torch():
    code = "import sys, service; print('torch' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "False"


def test_a_single_model_keeps_serving_and_is_found_by_the_name_of_its_checkpoint(service):
    refused = service.request("POST", "/v1/models/demo/unload")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert "demo is the default model" in refused.json()["error"]["message"]
    assert service.request("POST", "/v1/models/demo/load").json()["state"] == "ready"
    taken = service.request("POST", "/v1/models", json={"name": "demo", "source": "other"})
    assert (taken.status_code, taken.json()["error"]["message"]) == (409, "name: there is a model demo")
    assert service.extract(**BODY).json()["model"] == "demo"
