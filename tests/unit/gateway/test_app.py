"""Middleware, our routes and the gliner.serve format, over real ASGI."""

import asyncio
import dataclasses

import httpx
import pytest

from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.runner import Hop

BODY = {"text": "Ada met Charles.", "labels": ["person"]}
LONG = {"text": "one two three four five six seven eight Nine"}


def ask(client, method, path, **kwargs):
    return asyncio.run(client.request(method, path, **kwargs))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/gliner", 405, "method_not_allowed"),
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
def test_a_foreign_error_is_said_in_the_one_error_body(client, method, path, status, code):
    response = ask(client, method, path)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert error["request_id"] == response.headers["x-request-id"]


def test_too_many_requests_say_when_to_come_back(client):
    assert ask(client, "POST", "/foreign?status=429").headers["retry-after"] == "1"


def test_a_wrong_method_says_which_are_right(client):
    assert ask(client, "GET", "/gliner").headers["allow"] == "POST"


def test_a_translated_error_keeps_its_headers(client):
    assert ask(client, "POST", "/foreign?status=503").headers["access-control-allow-origin"] == "*"


def test_a_good_foreign_answer_passes_untouched(client):
    response = ask(client, "POST", "/foreign", content=b"{}")
    assert (response.status_code, response.text) == (200, "read 2")


def test_a_callers_request_id_is_kept_and_a_bad_one_replaced(client):
    assert ask(client, "GET", "/v1/model", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert len(ask(client, "GET", "/v1/model", headers={"X-Request-ID": "not mine"}).headers["x-request-id"]) == 32


def test_the_id_of_the_request_is_the_one_in_its_body_if_there_is_one(client, gateway):
    """`/gliner` has no such field; the header's id serves there."""
    answer = ask(client, "POST", "/gliner", json=BODY | {"adapter_id": "x"}, headers={"X-Request-ID": "mine-2"})
    assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"] == "mine-2"


def test_a_body_over_the_limit_is_refused_with_and_without_a_length(client):
    async def stream():
        for _ in range(20):
            yield b"x" * 100

    for content in (b"x" * 1001, stream()):
        response = ask(client, "POST", "/foreign", content=content)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_only_json_is_read(client):
    response = ask(client, "POST", "/gliner", content=b"a=b", headers={"Content-Type": "text/plain"})
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_gliner_serve_predict(client):
    answer = ask(client, "POST", "/gliner", json=BODY).json()
    assert list(answer) == ["entities"]
    assert answer["entities"][0] == {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}


def test_gliner_serve_is_found_with_a_slash_too(client):
    assert ask(client, "POST", "/gliner/", json=BODY).status_code == 200


def test_gliner_serve_relations(client, runner):
    answer = ask(client, "POST", "/gliner", json=BODY | {"relations": ["met"]}).json()
    assert answer["relations"] == [
        {
            "head": {"start": 0, "end": 3, "text": "Ada", "type": "person", "entity_idx": 0},
            "tail": {"start": 8, "end": 16, "text": "Charles.", "type": "person", "entity_idx": 1},
            "relation": "met",
            "score": 0.8,
        }
    ]


def test_gliner_serve_ignores_relations_that_the_model_cannot_find(client, runner):
    runner.supports_relations = False
    assert list(ask(client, "POST", "/gliner", json=BODY | {"relations": ["met"]}).json()) == ["entities"]
    assert runner.calls[0]["items"][0].relations == {}


def test_gliner_serve_reads_a_long_text_whole(client, runner):
    answer = ask(client, "POST", "/gliner", json=BODY | LONG)
    assert "x-gliner-truncated" not in answer.headers
    assert list(answer.json()) == ["entities"]
    assert runner.calls[0]["items"][0].long_text == "window"


def test_gliner_serve_cuts_a_long_text_where_it_is_told_to_and_says_so(runner, limits, served):
    cuts = Gateway(Hop(runner), dataclasses.replace(limits, compat_long_text="truncate"))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(served(cuts)), base_url="http://test")
    assert "x-gliner-truncated" not in ask(client, "POST", "/gliner", json=BODY).headers
    assert ask(client, "POST", "/gliner", json=BODY | LONG).headers["x-gliner-truncated"] == "true"
    assert runner.calls[1]["items"][0].long_text == "truncate"


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "malformed_request"),
        (b"", 400, "invalid_field"),
        (b'{"text": "a"}', 400, "invalid_field"),
        (b'{"text": 5, "labels": ["x"]}', 400, "invalid_field"),
        (b'{"text": "a", "labels": ["x"], "thresold": 1}', 400, "invalid_field"),
        (b'{"text": "a", "labels": ["x"], "threshold": 2}', 400, "invalid_field"),
        (b'{"text": "a", "labels": ["x"], "foo(": 2}', 400, "invalid_field"),
        (b'{"text": "a", "labels": ["x"], "adapter_id": "unknown"}', 404, "adapter_not_found"),
        (b'{"text": "' + b"a" * 101 + b'", "labels": ["x"]}', 413, "too_large"),
    ],
)
def test_gliner_serve_errors_have_its_statuses(client, content, status, code):
    response = ask(client, "POST", "/gliner", content=content, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("name", ["foo(", "list[x]", "str"])
def test_an_unknown_field_is_named_whatever_it_is_called(client, name):
    error = ask(client, "POST", "/gliner", json=BODY | {name: 1}).json()["error"]
    assert (error["param"], error["message"]) == (name, f"{name}: unknown field")
