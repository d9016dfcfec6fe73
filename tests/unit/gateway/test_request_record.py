"""What is recorded of a request: bounded metrics, one line in the access log, and the errors in /v1/status."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from asking import ask
from prometheus_client.parser import text_string_to_metric_families

from gliner_bento.errors import InternalError
from gliner_bento.gateway.endpoint import Endpoint, EndpointTable
from gliner_bento.gateway.request_record import PROBES, UNKNOWN, route_of

BODY = {"text": "Ada met Charles.", "labels": ["person"]}


def series(client) -> dict[tuple, float]:
    text = ask(client, "GET", "/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert len({(sample.name, *sorted(sample.labels.items())) for sample in samples}) == len(samples)
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}


@pytest.fixture
def lines(caplog):
    """The fields of the access log's lines."""
    caplog.set_level(logging.DEBUG, "gliner_bento.access")
    return lambda: [record.fields for record in caplog.records if record.name == "gliner_bento.access"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", ("/", None)),
        ("/v1/extract", ("/v1/extract", None)),
        ("/v1/extract//", ("/v1/extract", None)),
        ("/v1/adapters/a", ("/v1/adapters/{adapter_id}", "a")),
        ("/v1/adapters/a\n[INFO] b", ("/v1/adapters/{adapter_id}", "a%0A%5BINFO%5D%20b")),
        ("/v1/adapters/a/b", (UNKNOWN, None)),
        (f"/v1/adapters/{'a' * 50_000}", ("/v1/adapters/{adapter_id}", "a" * 128)),
        ("/models/m/requests/a/abort", ("/models/{model}/requests/{request_id}/abort", "a")),
        ("/static_content/page.css", ("/static_content", None)),
        ("/v1/extractor", (UNKNOWN, None)),
        ("", ("/", None)),
    ],
)
def test_a_path_is_recorded_as_its_template_and_id(path, found):
    templates = ["/", "/v1/extract", "/v1/adapters/{adapter_id}", "/models/{model}/requests/{request_id}/abort"]
    table = EndpointTable(Endpoint(method="GET", path=one, scope=None, handler=ask) for one in templates)
    assert route_of(table, path) == found


def test_paths_methods_and_ids_of_clients_make_no_series(client):
    def burst(first: int) -> None:
        async def scene() -> None:
            for number in range(first, first + 50):
                await client.get(f"/nowhere/{number}")
                await client.request(f"VERB{number}", "/v1/model")
                await client.post(f"/v1/requests/{number}/abort")
                await client.get(f"/v1/adapters/{number}")

        asyncio.run(scene())

    burst(0)
    series(client)  # has series of its own
    before = series(client)
    burst(50)
    after = series(client)
    assert after.keys() == before.keys()
    count = ("gliner_http_requests_total", ("method", "GET"), ("route", UNKNOWN), ("status", "404"))
    assert after[count] == before[count] + 50


def test_a_request_is_one_line_without_its_text(client, lines):
    answer = ask(client, "POST", "/v1/extract", json=BODY, headers={"X-Request-ID": "mine"})
    (line,) = lines()
    assert line.pop("duration_ms") >= 0
    assert line == {
        "request_id": "mine",
        "tenant": "127.0.0.1",
        "method": "POST",
        "route": "/v1/extract",
        "status": 200,
        "items": 1,
        "tokens": answer.json()["usage"]["tokens"],
    }


@pytest.mark.parametrize(
    ("path", "body", "items"),
    [("/v1/extract/batch", {"texts": ["Ada", "Bob"], "labels": ["x"]}, 2), ("/v1/extract/stream", BODY, 1)],
)
def test_a_line_counts_the_items_and_tokens_of_an_answer(client, lines, path, body, items):
    ask(client, "POST", path, json=body)
    (line,) = lines()
    assert line["items"] == items
    assert line["tokens"] > 0


def test_a_line_has_the_id_of_the_body_and_the_code_of_the_error(client, lines):
    ask(client, "POST", "/v1/extract", json=BODY | {"request_id": "own", "threshold": 7})
    ask(client, "POST", "/v1/extract", json=BODY | {"request_id": "own", "adapter_id": "nobody"})
    assert [(line["status"], line["error"]) for line in lines()] == [(422, "invalid_field"), (404, "adapter_not_found")]
    assert lines()[1]["request_id"] == "own"


def test_an_id_in_a_path_cannot_write_a_line(client, lines, caplog):
    ask(client, "POST", "/v1/requests/a%0A[INFO] forged/abort")
    (line,) = lines()
    assert (line["route"], line["target"]) == ("/v1/requests/{request_id}/abort", "a%0A%5BINFO%5D%20forged")
    assert "forged" not in caplog.text


def test_probes_are_logged_at_debug_unless_they_fail(client, replica, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG, "gliner_bento.access")
    for path in [*sorted(PROBES), "/playground/main.js"]:
        ask(client, "GET", path)
    replica.alive = False
    assert ask(client, "GET", "/readyz").status_code == 503
    monkeypatch.setattr(replica, "status", lambda: 1 / 0)
    assert ask(client, "GET", "/readyz").json()["error"]["code"] == "internal"
    access = [record.levelname for record in caplog.records if record.name == "gliner_bento.access"]
    assert access == ["DEBUG"] * (len(PROBES) + 2) + ["INFO"]


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/stream", "/gliner"])
def test_a_client_that_disconnects_is_recorded_as_499(app, replica, lines, path):
    replica.step = lambda: False

    async def scene() -> None:
        body = json.dumps(BODY).encode()
        messages = iter([{"type": "http.request", "body": body}])

        async def receive():
            for message in messages:
                return message
            while not replica.calls:
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(_):
            pass

        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        await app({**scope, "client": ("1.2.3.4", 1), "http_version": "1.1"}, receive, send)

    asyncio.run(scene())
    (line,) = lines()
    assert (line["status"], line["tenant"], line["error"]) == (499, "1.2.3.4", "aborted")
    assert line["request_id"]


def test_an_error_in_a_stream_is_recorded(client, replica, lines):
    replica.error = lambda item: InternalError() if "Nine" in item.text else None
    answer = ask(client, "POST", "/v1/extract/stream", json=BODY | {"text": "One two three four five six seven 8 Nine"})
    (line,) = lines()
    assert answer.status_code == line["status"] == 200
    assert line["error"] == "internal"


def test_errors_are_counted_by_code(client):
    name = ("gliner_errors_total", ("code", "invalid_field"))
    before = series(client).get(name, 0)
    ask(client, "POST", "/v1/extract", json=BODY | {"threshold": 7})
    assert series(client)[name] == before + 1


def test_the_status_shows_the_load_and_the_latest_faults_without_their_texts(client, replica):
    replica.error = lambda item: InternalError()
    for number in range(25):
        ask(client, "POST", "/v1/extract", json=BODY, headers={"X-Request-ID": f"r{number}"})
    ask(client, "POST", "/v1/extract", json=BODY | {"threshold": 7})
    status = ask(client, "GET", "/v1/status").json()
    assert (status["ready"], status["model"], status["queue"]["waiting_items"]) == (True, "memory", 0)
    assert set(status["adapters"]) == {"device", "cpu", "disk"}
    assert [error["request_id"] for error in status["recent_errors"]] == [f"r{number}" for number in range(24, 4, -1)]
    assert {(error["code"], error["status"]) for error in status["recent_errors"]} == {("internal", 500)}
    assert "Ada" not in str(status)


def test_a_replica_that_does_not_answer_is_shown_as_such(client, replica, monkeypatch):
    async def unreachable():
        raise InternalError()

    monkeypatch.setattr(replica, "status", unreachable)
    status = ask(client, "GET", "/v1/status").json()
    assert (status["ready"], status["queue"], status["lanes"]) == (False, None, None)
    metrics = series(client)
    assert metrics["gliner_ready", ("model", "")] == 0
    assert "gliner_waiting_items" not in {name for name, *_ in metrics}


def test_metrics_show_the_replicas_state_at_the_scrape(client, manager):
    metrics = series(client)
    assert metrics["gliner_ready", ("model", "memory")] == 1
    assert metrics["gliner_running_items", ("model", "memory")] == 0
    assert {dict(name[1:])["tier"] for name in metrics if name[0] == "gliner_adapters"} == {"device", "cpu", "disk"}
    assert [name for name in metrics if name[0] == "gliner_model_info"]
