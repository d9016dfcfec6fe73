"""What holds for every route, those of other servers' formats too: limits, overload, faults, the log, the headers."""

from __future__ import annotations

import asyncio
import codecs
import dataclasses
import functools
import json
import logging

import httpx
import msgspec
import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento.errors import QueueFull
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.json_values import MAX_VALUES
from gliner_bento.http.pieces import PIECE_BYTES

LARGE = dataclasses.replace(OPTIONS, max_body_bytes=2**25, max_mapping_bytes=2**23)
ENDPOINTS = GatewayApp(OPTIONS).endpoints
WITH_BODY = [endpoint for endpoint in ENDPOINTS if endpoint.request]
LIMITED = [endpoint for endpoint in ENDPOINTS if endpoint.is_limited]
REFUSABLE = [endpoint for endpoint in ENDPOINTS if endpoint.is_refusable]


def path_of(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{model}", "memory").replace("{file:path}", "main.js").translate({123: "", 125: ""})


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def example(endpoint: Endpoint) -> bytes:
    assert endpoint.operation
    if not endpoint.request:  # /v1/documents: counts as a request, and is refused for its missing name
        return b""
    return json.dumps(endpoint.operation.examples[endpoint.request]).encode()


async def send(client: httpx.AsyncClient, endpoint: Endpoint, body: bytes = b"", **headers: str) -> httpx.Response:
    headers |= {"Content-Type": "application/json"} if endpoint.request else {}
    return await client.request(endpoint.method, path_of(endpoint), content=body, headers=headers)


def check_error(response: httpx.Response, endpoint: Endpoint, code: str) -> None:
    """The status and the body are those that this route's format has for the error."""
    assert response.status_code == endpoint.statuses[code], response.text
    msgspec.convert(response.json(), endpoint.error, strict=True)
    assert response.headers["x-request-id"]
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=named)
def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(replica, serving, endpoint):
    body = b'{"text": [' + b"[]," * (MAX_VALUES // 2) + b"[]]}"
    response = asyncio.run(send(serving(replica, LARGE), endpoint, body))
    check_error(response, endpoint, "too_large")
    assert "values" in response.text
    assert not replica.calls


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=named)
def test_other_bodies_are_refused_in_the_routes_format(client, endpoint):
    check_error(asyncio.run(send(client, endpoint, b"{")), endpoint, "malformed_request")
    check_error(asyncio.run(send(client, endpoint, b" " * 1001)), endpoint, "too_large")
    if endpoint.method == "POST":  # an adapter's archive may have other types
        response = asyncio.run(client.post(path_of(endpoint), data={"a": "b"}))
        check_error(response, endpoint, "unsupported_media_type")


@pytest.mark.parametrize("endpoint", [one for one in WITH_BODY if one.method == "POST"], ids=named)
def test_what_gives_work_to_the_replica_is_refused_under_overload(replica, serving, endpoint):
    assert asyncio.run(send(serving(replica, LARGE), endpoint, example(endpoint))).status_code in (200, 201, 501)
    assert bool(replica.calls) == endpoint.is_refusable


async def sent_beside_another(client: httpx.AsyncClient, endpoint: Endpoint, replica: MemoryReplica) -> httpx.Response:
    """The response to a request that arrives while another one runs."""
    replica.step = lambda: False
    running = asyncio.ensure_future(send(client, ENDPOINTS[0], example(ENDPOINTS[0])))
    while not replica.calls:
        await asyncio.sleep(0)
    response = await send(client, endpoint, example(endpoint))
    replica.step = lambda: True
    assert (await running).status_code == 200
    return response


@pytest.mark.parametrize("endpoint", REFUSABLE, ids=named)
def test_overload_is_refused_in_the_routes_format(replica, serving, endpoint):
    client = serving(replica, dataclasses.replace(LARGE, max_queued_tokens=1))
    response = asyncio.run(sent_beside_another(client, endpoint, replica))
    check_error(response, endpoint, QueueFull.code)
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("endpoint", LIMITED, ids=named)
def test_limits_of_a_tenant_count_on_every_route(replica, serving, endpoint):
    client = serving(replica, dataclasses.replace(LARGE, max_tenant_requests_per_s=1.0))
    assert asyncio.run(send(client, endpoint, example(endpoint))).headers["x-ratelimit-remaining"] == "0"
    check_error(asyncio.run(send(client, endpoint, example(endpoint))), endpoint, "rate_limited")


@pytest.mark.parametrize("endpoint", LIMITED, ids=named)
def test_a_request_counts_for_its_tenant_until_it_is_answered(replica, serving, endpoint):
    client = serving(replica, dataclasses.replace(LARGE, max_tenant_concurrency=1))
    response = asyncio.run(sent_beside_another(client, endpoint, replica))
    check_error(response, endpoint, "rate_limited")


@pytest.mark.parametrize("endpoint", [one for one in LIMITED if one.request], ids=named)
def test_a_text_has_a_limit_on_every_route(replica, serving, endpoint):
    body = json.dumps(with_text(json.loads(example(endpoint)), "a" * 101)).encode()
    response = asyncio.run(send(serving(replica, dataclasses.replace(LARGE, max_text_chars=100)), endpoint, body))
    if endpoint.path.endswith("/batch") or endpoint.path == "/predict":  # a text's own error is in its result
        assert "101 characters; the limit is 100" in response.text
    else:
        check_error(response, endpoint, "too_large")


def test_all_routes_that_work_for_a_caller_are_limited():
    """The others with a body: aborts, and Label Studio's events."""
    unlimited = {one.path for one in WITH_BODY if one.scope == "extract" and not one.is_limited}
    assert unlimited == {"/setup", "/webhook", "/v1/models/{model_uid}/requests/{request_id}/abort"}
    without_model = {one.path for one in LIMITED} - {one.path for one in REFUSABLE}
    assert without_model == {"/anonymize", "/v1/documents", "/v1/restore", "/v1/restore/stream"}


@pytest.mark.parametrize("endpoint", REFUSABLE, ids=named)
def test_every_format_names_a_model_in_the_url_or_in_its_own_place(serving, endpoint):
    replicas = {"general": MemoryReplica(), "pii": MemoryReplica()}
    client, path = serving(replicas, LARGE), endpoint.path
    body = json.loads(example(endpoint))
    body.pop("model", None)

    def post(path: str, **sent: str) -> httpx.Response:
        return asyncio.run(client.post(path, json=body | sent))

    if "{model}" in path:  # DJL Serving's place
        ways = [lambda name: post(path.replace("{model}", name).replace("{version}", "1"))]
    else:
        ways = [lambda name: post(f"{path}?model={name}"), lambda name: post(f"/models/{name}{path}")]
    if "model" in endpoint.request.model_fields:
        ways.append(lambda name: post(path.replace("{model}", name).replace("{version}", "1"), model=name))
    for way in ways:
        assert way("pii").status_code == 200
        check_error(unknown := way("other"), endpoint, "model_not_found")
        assert "there are general, pii" in unknown.text
    assert [len(replica.calls) for replica in replicas.values()] == [0, len(ways)]
    assert "{model}" in path or post(path).status_code == 200
    assert len(replicas["pii"].calls) == len(ways)


@pytest.mark.parametrize("endpoint", REFUSABLE, ids=named)
def test_a_fault_is_an_internal_error_in_the_routes_format(replica, serving, endpoint, monkeypatch):
    async def fail(*_):
        raise RuntimeError("Ada")

    async def fail_in_a_stream(*_):
        raise RuntimeError("Ada")
        yield

    monkeypatch.setattr(replica, "extract", fail)
    monkeypatch.setattr(replica, "stream", fail_in_a_stream)
    app = GatewayApp(LARGE)
    app.bind(replica)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://test")
    response = asyncio.run(send(client, endpoint, example(endpoint)))
    check_error(response, endpoint, "internal")
    assert "Ada" not in response.text


@pytest.mark.parametrize("endpoint", REFUSABLE, ids=named)
def test_every_extraction_ends_at_its_deadline(replica, serving, endpoint):
    replica.step = lambda: False
    client = serving(replica, dataclasses.replace(LARGE, request_timeout_s=0.05))
    response = asyncio.run(send(client, endpoint, example(endpoint)))
    if endpoint.path.endswith("/batch") or endpoint.path == "/predict":  # a text's own error is in its result
        assert response.status_code == 200
        assert "deadline" in response.text
    else:
        check_error(response, endpoint, "deadline_exceeded")


SMALL_ANSWERS = {
    *("/pipeline/zero-shot-classification", "/tei/predict", "/v1/classify", "/gliclass"),
    "/beta/litellm_basic_guardrail_api",
}
"""Routes whose answers have the labels of the request, however long the text, or only placeholders."""


def with_text(value, text: str):
    """A request with another text in the place of its own."""
    if isinstance(value, list):
        return [text if isinstance(one, str) else with_text(one, text) for one in value]
    if not isinstance(value, dict):
        return value
    own = {"text", "content", "input", "inputs"} & value.keys()
    nested = {
        name: with_text(one, text)
        for name, one in value.items()
        if name in {"texts", "messages", "structured_messages", "tasks", "data"}
    }
    return value | nested | {name: text for name in own}


@pytest.mark.parametrize("endpoint", REFUSABLE, ids=named)
def test_half_of_a_surrogate_pair_is_read_as_a_replacement_character(replica, serving, endpoint):
    body = json.dumps(with_text(json.loads(example(endpoint)), "Ada \ud83d \U0001f600")).encode()
    assert rb"\ud83d \ud83d\ude00" in body
    response = asyncio.run(send(serving(replica, LARGE), endpoint, body))
    assert response.status_code == 200, response.text
    assert {item.text for items, _ in replica.calls for item in items} == {"Ada \ufffd \U0001f600"}


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=named)
def test_a_byte_order_mark_changes_nothing(serving, endpoint):
    without, marked = (
        asyncio.run(send(serving(MemoryReplica(), LARGE), endpoint, mark + example(endpoint)))
        for mark in (b"", codecs.BOM_UTF8)
    )
    assert marked.status_code == without.status_code


@pytest.mark.parametrize("endpoint", [one for one in REFUSABLE if one.path not in SMALL_ANSWERS], ids=named)
def test_a_large_answer_of_any_format_is_sent_in_pieces(replica, endpoint):
    replica.pass_words = 10_000
    app = GatewayApp(dataclasses.replace(LARGE, max_text_chars=2**20, max_entities=10_000, max_relations=10_000))
    app.bind(replica)
    messages = []

    async def recorded(scope, receive, send):
        async def record(message):
            messages.append(message.get("body", b""))
            await send(message)

        await app(scope, receive, record)

    client = httpx.AsyncClient(transport=httpx.ASGITransport(recorded), base_url="http://test")
    text = " ".join(f"A{number:0119}" for number in range(2000))
    response = asyncio.run(send(client, endpoint, json.dumps(with_text(json.loads(example(endpoint)), text)).encode()))
    assert response.status_code == 200, response.text
    has_no_entities = "/analyze" in endpoint.path or "/redact" in endpoint.path
    assert f"A{1999:0119}" in response.text or has_no_entities
    assert len(response.content) > 3 * PIECE_BYTES
    assert max(map(len, messages)) < 2 * PIECE_BYTES
    for line in response.content.splitlines():
        assert line == msgspec.json.encode(msgspec.json.decode(line))


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.scope], ids=named)
def test_a_missing_key_is_an_error_of_the_routes_format(replica, serving, endpoint):
    client = serving(replica, dataclasses.replace(OPTIONS, api_keys="[]"))
    check_error(asyncio.run(send(client, endpoint)), endpoint, "unauthorized")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=named)
def test_every_request_is_recorded_under_its_route(replica, serving, endpoint, caplog):
    caplog.set_level(logging.DEBUG, "gliner_bento.access")
    body = example(endpoint) if endpoint.request else b""
    response = asyncio.run(send(serving(replica, LARGE), endpoint, body))
    (fields,) = [record.fields for record in caplog.records if record.name == "gliner_bento.access"]
    assert (fields["route"], fields["status"]) == (endpoint.path, response.status_code)
    assert fields["items"] >= 1 or not endpoint.is_refusable


@functools.cache
def paths_of_the_document():
    return json.loads(GatewayApp(LARGE).document)["paths"]


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.operation and one.scope], ids=named)
def test_every_status_that_a_route_answers_is_documented(serving, endpoint):
    options = dataclasses.replace(LARGE, max_body_bytes=2**16)
    client, path, body = serving(MemoryReplica(), options), path_of(endpoint), b""
    documented = paths_of_the_document()[endpoint.path][endpoint.method.lower()]["responses"]
    sent: list[tuple[str, bytes, str]] = [(f"{path}?model=none", body, "application/json")]
    if endpoint.request:
        body = example(endpoint)
        sent = [(one, body, "application/json") for one in (path, f"{path}?model=none", f"/models/none{path}")]
        sent += [
            (path, wrong, "application/json") for wrong in (b"{", b"[]", b"{}", b" " * (options.max_body_bytes + 1))
        ]
        sent += [(path, b"a=b", "application/x-www-form-urlencoded")]
    for url, content, kind in sent:
        headers = {"Content-Type": kind} if endpoint.request else {}
        response = asyncio.run(client.request(endpoint.method, url, content=content, headers=headers))
        assert str(response.status_code) in documented, (url, content[:40])
