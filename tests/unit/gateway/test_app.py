"""The gateway as it runs by itself, and its middleware around another framework's routes, over real ASGI."""

import asyncio
import dataclasses
import gzip
import json

import httpx
import pytest
from asking import ask
from doubles.memory_replica import MemoryReplica
from gateway_options import changed

from gliner_bento.errors import ERRORS_BY_CODE, InvalidField
from gliner_bento.gateway import compat
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.error_body import STATUSES, respond

BODY = {"text": "Ada met Charles.", "labels": ["person"]}
LONG = {"text": "one two three four five six seven eight Nine"}


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz"])
def test_the_probes_of_a_ready_replica(client, path):
    assert ask(client, "GET", path).status_code == 200
    assert ask(client, "HEAD", path).status_code == 200


def test_a_replica_that_is_not_ready_is_alive_all_the_same(client, replica):
    replica.alive = False
    response = ask(client, "GET", "/readyz")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "not_ready")
    assert response.headers["retry-after"] == "1"
    assert [ask(client, "GET", path).status_code for path in ("/livez", "/healthz")] == [200, 200]


def test_metrics_are_in_prometheus_text_format(client):
    response = ask(client, "GET", "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")


def test_the_index_page_shows_the_document(client):
    page = ask(client, "GET", "/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "./docs.json" in page.text


def test_the_document_lists_what_is_served(client, app):
    document = ask(client, "GET", "/docs.json").json()
    documented = {(one.path, one.method.lower()) for one in app.endpoints if one.operation}
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == documented
    assert {"/v1/extract", "/v1/extract/batch", "/v1/extract/stream", "/v1/model", "/gliner"} <= set(document["paths"])


def test_a_route_answers_every_method_that_it_has_and_names_them_to_the_others(client, app):
    by_path = {}
    for endpoint in app.endpoints:
        by_path.setdefault(endpoint.path, set()).add(endpoint.method)
    for path, methods in by_path.items():
        response = ask(client, "PATCH", path.replace("{", "").replace("}", ""))
        assert (response.status_code, bool(response.json())) == (405, True), path
        assert methods <= set(response.headers["allow"].split(", ")), path


def test_the_gateways_own_routes_extract(client):
    answer = ask(client, "POST", "/v1/extract", json=BODY | {"request_id": "r"}).json()
    assert [entity["text"] for entity in answer["entities"]] == ["Ada", "Charles"]
    assert (answer["model"], answer["request_id"]) == ("memory", "r")
    batch = ask(client, "POST", "/v1/extract/batch", json={"texts": ["Ada", "y" * 101], "labels": ["x"]}).json()
    assert batch["results"][0]["result"]["entities"][0]["text"] == "Ada"
    assert (batch["results"][0]["error"], batch["results"][1]["result"]) == (None, None)
    assert batch["results"][1]["error"]["code"] == "too_large"
    aborted = ask(client, "POST", "/v1/requests/r/abort").json()
    assert aborted == {"request_id": "r", "aborted": False}
    assert ask(client, "GET", "/v1/model").json()["max_labels"] == 5


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/batch", "/v1/extract/stream"])
@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "malformed_request"),
        (b"[1]", 422, "invalid_field"),
        (b"", 422, "invalid_field"),
        (b'{"text": "a", "texts": ["a"], "labels": ["x"], "thresold": 1}', 422, "invalid_field"),
        (b'{"text": "\xff", "labels": ["x"]}', 400, "malformed_request"),
        (b'{"text": "' + b"a" * 1000 + b'", "labels": ["x"]}', 413, "too_large"),
    ],
)
def test_a_bad_body_is_one_clear_error(client, path, content, status, code):
    response = ask(client, "POST", path, content=content, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.json()["error"]["request_id"] == response.headers["x-request-id"]


def test_a_fault_of_a_handler_is_an_internal_error_that_shows_nothing(app, replica):
    async def broken(*_):
        raise RuntimeError("a secret")

    replica.extract = broken
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://test")
    response = ask(client, "POST", "/v1/extract", json=BODY)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in response.text


def test_an_app_serves_no_replica_before_one_is_bound(options):
    with pytest.raises(AssertionError, match="bind"):
        _ = GatewayApp(options).gateway


def test_every_error_has_a_status():
    assert set(STATUSES) == set(ERRORS_BY_CODE)
    assert all(400 <= status < 600 for status in STATUSES.values())


@pytest.mark.parametrize("code", STATUSES)
def test_an_errors_answer_has_its_status_its_body_and_nothing_else(code):
    async def failing():
        raise ERRORS_BY_CODE[code]("what is wrong", param="field")

    response = asyncio.run(respond(Context(), failing()))
    error = json.loads(response.body)["error"]
    assert (response.status_code, error["code"], error["message"], error["param"]) == (
        STATUSES[code],
        code,
        "what is wrong",
        "field",
    )
    assert set(error) == {"code", "message", "param", "request_id"}
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503, 504))


def test_an_endpoint_may_have_statuses_of_its_own():
    async def failing():
        raise InvalidField("text: wrong", param="text")

    assert asyncio.run(respond(Context(), failing(), {**STATUSES, "invalid_field": 400})).status_code == 400


def test_what_is_no_error_of_ours_passes_the_one_handler():
    async def failing():
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError):
        asyncio.run(respond(Context(), failing()))


PEER = """
from starlette.responses import PlainTextResponse

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.endpoint import Endpoint, Operation
from gliner_bento.gateway.error_body import STATUSES


async def answer(gateway, context, request):
    if await request.body():
        raise InvalidField("text: wrong", param="text")
    return PlainTextResponse((await (await gateway.served(context)).info()).model)


def endpoints(options):
    operation = Operation(name="peer", tag="compat", summary="Another format", description="A peer's.", errors=(418,))
    statuses = {**STATUSES, "invalid_field": 418}
    route = {"method": "POST", "path": "/peer", "scope": "extract"}
    return [Endpoint(**route, handler=answer, operation=operation, statuses=statuses)]
"""


def test_another_wire_format_is_one_more_file(replica, options, monkeypatch, tmp_path):
    (tmp_path / "peer_of_a_test.py").write_text(PEER, encoding="utf-8")
    monkeypatch.setattr(compat, "__path__", [*compat.__path__, str(tmp_path)])
    app = GatewayApp(options)
    app.bind(replica)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    assert ask(client, "POST", "/peer").text == "memory"
    assert ask(client, "POST", "/peer", json={}).status_code == 418
    paths = ask(client, "GET", "/docs.json").json()["paths"]
    assert {"/peer", "/gliner"} <= set(paths)
    assert paths["/peer"]["post"]["responses"]["418"]["description"] == "invalid_field"
    assert ask(client, "POST", "/gliner", json=BODY).status_code == 200


def test_a_route_has_one_endpoint(options, monkeypatch, tmp_path):
    (tmp_path / "peer_in_the_way.py").write_text(PEER.replace("/peer", "/v1/extract"), encoding="utf-8")
    monkeypatch.setattr(compat, "__path__", [*compat.__path__, str(tmp_path)])
    with pytest.raises(ValueError, match="two endpoints for POST /v1/extract"):
        GatewayApp(options)


def test_an_archive_is_an_archive_below_a_root_path_too(app):
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app, root_path="/ner"), base_url="http://test")
    headers = {"Content-Type": "application/zip"}
    assert ask(client, "PUT", "/ner/v1/adapters/a", content=b"x" * 2000, headers=headers).status_code == 201


@pytest.mark.parametrize("root_path", ["", "/ner"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", None),
        ("GET", "/docs.json/", None),
        ("GET", "/readyz//", None),
        ("GET", "/v1/model/", None),
        ("GET", "/v1/adapters/", None),
        ("PUT", "/v1/adapters/a/", b"x" * 2000),
        ("POST", "/v1/extract/", BODY),
        ("POST", "/v1/extract/stream/", BODY),
        ("POST", "/v1/requests/r/abort/", None),
        ("POST", "/gliner/", BODY),
        ("GET", "/gliner/adapter-cache/?adapter_id=a", None),
    ],
)
def test_a_slash_at_the_end_is_served_below_a_root_path_too(app, root_path, method, path, body):
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app, root_path=root_path), base_url="http://test")
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    response = ask(client, method, root_path + path, **content)
    assert response.status_code in (200, 201), response.text


@pytest.mark.parametrize("root_path", ["", "/ner"])
def test_a_models_name_before_the_path_is_served_below_a_root_path_too(options, root_path):
    app = GatewayApp(options)
    app.bind({"a": MemoryReplica(), "b": MemoryReplica()})
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app, root_path=root_path), base_url="http://test")
    for path in ("/v1/model", "/v1/model/?model=a"):
        assert ask(client, "GET", f"{root_path}/models/b{path}").json()["model"] == "b"
    assert ask(client, "GET", f"{root_path}/models/b").json()[0]["workflowName"] == "b"
    for path in ("/models/b/nothing", "/models//v1/model", "/models/a/models/b/v1/model"):
        assert ask(client, "GET", root_path + path).status_code == 404


def test_a_slash_at_the_end_is_served_by_foreign_routes_too(beside_foreign_routes):
    response = ask(beside_foreign_routes, "POST", "/foreign/", content=b"{}")
    assert (response.status_code, response.text) == (200, "read 2")


@pytest.mark.parametrize("path", ["/nowhere/", "/v1/extract/nowhere/", "/v1/adapters/a%2F", "/v1/adapters/a/b/"])
def test_a_slash_at_the_end_does_not_make_a_route(client, path):
    response = ask(client, "GET", path)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


def test_a_server_without_raw_paths_serves_a_slash_at_the_end(app):
    async def without_raw_path(scope, receive, send):
        await app({name: value for name, value in scope.items() if name != "raw_path"}, receive, send)

    client = httpx.AsyncClient(transport=httpx.ASGITransport(without_raw_path), base_url="http://test")
    assert ask(client, "POST", "/v1/extract/", json=BODY).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/extract", 405, "method_not_allowed"),
        ("POST", "/foreign?status=429", 429, "queue_full"),
        ("POST", "/foreign?status=500", 500, "internal"),
        ("POST", "/foreign?status=503", 503, "not_ready"),
        ("POST", "/foreign?status=413", 413, "too_large"),
        ("POST", "/foreign?status=400", 422, "invalid_field"),
        ("POST", "/foreign?status=504", 504, "deadline_exceeded"),
        ("POST", "/foreign?status=418", 418, "malformed_request"),
        ("POST", "/foreign?status=502", 502, "internal"),
        ("POST", "/foreign?status=599", 500, "internal"),
    ],
)
def test_a_frameworks_error_is_rewritten_as_the_one_error_body(beside_foreign_routes, method, path, status, code):
    response = ask(beside_foreign_routes, method, path)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert error["request_id"] == response.headers["x-request-id"]


def test_too_many_requests_say_when_to_come_back(beside_foreign_routes):
    assert ask(beside_foreign_routes, "POST", "/foreign?status=429").headers["retry-after"] == "1"


def test_a_wrong_method_says_which_are_right(client):
    assert ask(client, "GET", "/gliner").headers["allow"] == "POST"


def test_a_translated_error_keeps_its_headers(beside_foreign_routes):
    assert ask(beside_foreign_routes, "POST", "/foreign?status=503").headers["access-control-allow-origin"] == "*"


def test_a_good_foreign_answer_passes_untouched(beside_foreign_routes):
    response = ask(beside_foreign_routes, "POST", "/foreign", content=b"{}")
    assert (response.status_code, response.text) == (200, "read 2")


def test_a_callers_request_id_is_kept_and_a_bad_one_replaced(client):
    assert ask(client, "GET", "/v1/model", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert len(ask(client, "GET", "/v1/model", headers={"X-Request-ID": "not mine"}).headers["x-request-id"]) == 32


def test_the_id_of_the_request_is_the_one_in_its_body_if_there_is_one(client, gateway):
    """`/gliner` has no such field; the header's id serves there."""
    answer = ask(client, "POST", "/gliner", json=BODY | {"adapter_id": "x"}, headers={"X-Request-ID": "mine-2"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (404, "mine-2")


def test_a_body_over_the_limit_is_refused_with_and_without_a_length(beside_foreign_routes):
    async def stream():
        for _ in range(20):
            yield b"x" * 100

    for content in (b"x" * 1001, stream()):
        response = ask(beside_foreign_routes, "POST", "/foreign", content=content)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/batch", "/v1/extract/stream", "/gliner"])
@pytest.mark.parametrize("declared", [True, False], ids=["with a length", "without"])
def test_a_body_over_the_limit_is_refused_by_our_own_routes(client, path, declared):
    async def stream():
        for _ in range(20):
            yield b" " * 100

    content = b" " * 1001 if declared else stream()
    response = ask(client, "POST", path, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert "max_body_bytes" in response.text


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"a=b", {"Content-Type": "text/plain"}),
        (b"", {"Content-Type": "application/vnd.bentoml+pickle"}),
        (gzip.compress(b"{}", mtime=0), {"Content-Type": "application/json", "Content-Encoding": "gzip"}),
        (b'{"text": "a", "labels": ["b"]}', {"Content-Type": "application/json", "Content-Encoding": "br"}),
    ],
)
def test_only_json_is_read(client, content, headers):
    response = ask(client, "POST", "/v1/extract", content=content, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_gliner_serve_predict(client):
    answer = ask(client, "POST", "/gliner", json=BODY).json()
    assert list(answer) == ["entities"]
    assert answer["entities"][0] == {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 1.0}


def test_gliner_serve_relations(client, replica):
    answer = ask(client, "POST", "/gliner", json=BODY | {"relations": ["met"]}).json()
    assert answer["relations"] == [
        {
            "head": {"start": 0, "end": 3, "text": "Ada", "type": "person", "entity_idx": 0},
            "tail": {"start": 8, "end": 15, "text": "Charles", "type": "person", "entity_idx": 1},
            "relation": "met",
            "score": 1.0,
        }
    ]


def test_gliner_serve_ignores_relations_that_the_model_cannot_find(client, replica):
    replica.model = dataclasses.replace(replica.model, supports_relations=False)
    assert list(ask(client, "POST", "/gliner", json=BODY | {"relations": ["met"]}).json()) == ["entities"]
    assert replica.calls[0][0][0].relations == {}


def test_gliner_serve_reads_a_long_text_whole(client, replica):
    answer = ask(client, "POST", "/gliner", json=BODY | LONG)
    assert "x-gliner-truncated" not in answer.headers
    assert list(answer.json()) == ["entities"]
    assert replica.calls[0][0][0].long_text == "window"


def test_gliner_serve_truncates_a_long_text_if_configured_and_reports_it(replica, options, serving):
    client = serving(replica, changed(options, compat_long_text="truncate"))
    assert "x-gliner-truncated" not in ask(client, "POST", "/gliner", json=BODY).headers
    assert ask(client, "POST", "/gliner", json=BODY | LONG).headers["x-gliner-truncated"] == "true"
    assert replica.calls[1][0][0].long_text == "truncate"


@pytest.mark.parametrize(
    ("content", "status", "named"),
    [
        (b"{", 400, "JSON"),
        (b"", 400, "labels"),
        (b'{"text": "a"}', 400, "labels"),
        (b'{"text": 5, "labels": ["x"]}', 400, "text"),
        (b'{"text": "a", "labels": ["x"], "thresold": 1}', 400, "thresold"),
        (b'{"text": "a", "labels": ["x"], "threshold": 2}', 400, "threshold"),
        (b'{"text": "a", "labels": ["x"], "foo(": 2}', 400, "foo("),
        (b'{"text": "a", "labels": ["x"], "adapter_id": "unknown"}', 404, "adapter_id"),
        (b'{"text": "' + b"a" * 101 + b'", "labels": ["x"]}', 413, "text"),
    ],
)
def test_gliner_serve_errors_have_its_statuses_and_its_body(client, content, status, named):
    response = ask(client, "POST", "/gliner", content=content, headers={"Content-Type": "application/json"})
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert named in response.json()["error"]


@pytest.mark.parametrize("name", ["foo(", "list[x]", "str"])
def test_an_unknown_field_is_named_whatever_it_is_called(client, name):
    error = ask(client, "POST", "/v1/extract", json=BODY | {name: 1}).json()["error"]
    assert (error["param"], error["message"]) == (name, f"{name}: unknown field")
