"""What the clients send, and what they make of answers, good and bad."""

import json
import socket
from pathlib import Path

import httpx
import pytest

from gliner_bento.client import AsyncClient, Client, calls
from gliner_bento.errors import Conflict, DeadlineExceeded, InternalError, InvalidField, NotReady


def test_a_call_carries_its_options():
    call = calls.extract("a", ["x"], {"threshold": 0.3})
    assert (call.method, call.path) == ("POST", "/v1/extract")
    assert call.body == {"text": "a", "labels": ["x"], "threshold": 0.3}


def test_an_id_cannot_leave_its_place_in_the_path():
    assert calls.abort("a/../../model?x").path == "/v1/requests/a%2F..%2F..%2Fmodel%3Fx/abort"


def test_the_servers_error_is_raised_as_what_it_was():
    body = {"error": {"code": "invalid_field", "message": "labels: wrong", "param": "labels", "request_id": "r"}}
    with pytest.raises(InvalidField, match="labels: wrong") as caught:
        calls.model().parse_response(httpx.Response(422, json=body))
    assert caught.value.param == "labels"


@pytest.mark.parametrize(("status", "error"), [(502, NotReady), (503, NotReady), (500, InternalError)])
def test_an_error_that_is_not_the_servers_is_raised_by_its_status(status, error):
    with pytest.raises(error, match=str(status)):
        calls.model().parse_response(httpx.Response(status, text="<html>a proxy speaks</html>"))


def test_an_adapters_id_cannot_leave_its_place_in_the_path():
    for call in (calls.adapter("a/b?c"), calls.put_adapter("a/b?c", None, {}), calls.delete_adapter("a/b?c")):
        assert call.path == "/v1/adapters/a%2Fb%3Fc"


def test_a_string_is_the_servers_source_and_a_path_is_uploaded():
    options = {"revision": None, "pinned": None, "preload": False}
    named = calls.put_adapter("a", "hub:o/n", options | {"revision": "v1"})
    assert (named.method, named.body) == ("PUT", {"source": "hub:o/n", "revision": "v1", "preload": False})
    assert (named.query, named.upload) == (None, None)
    uploaded = calls.put_adapter("a", Path("here"), options | {"pinned": True})
    assert (uploaded.body, uploaded.query) == (None, {"pinned": True, "preload": False})
    assert uploaded.upload == Path("here")
    kept = calls.put_adapter("a", None, options | {"pinned": False})
    assert (kept.body, kept.query, kept.upload) == (None, {"pinned": False, "preload": False}, None)


def test_a_deletion_answers_nothing():
    assert calls.delete_adapter("a").parse_response(httpx.Response(204)) is None
    body = {"error": {"code": "conflict", "message": "in use"}}
    with pytest.raises(Conflict, match="in use"):
        calls.delete_adapter("a").parse_response(httpx.Response(409, json=body))


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"<html>", "body: Invalid JSON"),
        (b"{}", "results: Field required"),
        (
            b'{"results": [{"result": {"relations": []}}], "model": "m", "request_id": "r"}',
            "results.0.result.entities: ",
        ),
    ],
)
def test_an_answer_without_a_required_field_is_httpxs_error(content, place):
    with pytest.raises(httpx.DecodingError, match=place):
        calls.extract_items(["Ada"], ["person"], {}).parse_response(httpx.Response(200, content=content))


def test_a_request_has_no_half_of_a_surrogate_pair():
    call = calls.extract("\ud83d Ada", ["per\udc00son"], {"structures": {"a\ud800": ["b"]}})
    sent = json.loads(call.options()["content"])
    assert sent == {"text": "\ufffd Ada", "labels": ["per\ufffdson"], "structures": {"a\ufffd": ["b"]}}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("Ada", "texts: must be several texts, such as a list, not one string"),
        (["Ada", None], "texts.1: must be a text (str), not NoneType"),
    ],
)
def test_a_batch_of_other_things_than_texts_is_refused(texts, message):
    with pytest.raises(InvalidField) as caught:
        calls.extract_batch(texts, ["x"], {})
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("url", ["localhost:3000", "", "ftp://host", "http://", "http://a:b", "http:///path"])
def test_a_url_that_is_none_is_refused_before_the_first_request(kind, url):
    with pytest.raises(InvalidField, match="url: "):
        kind(url)


def test_a_server_that_is_not_there_is_one_error_of_ours(url_of_nobody):
    with Client(url_of_nobody) as client:
        for call in (
            client.model,
            lambda: client.extract("Ada", ["x"]),
            lambda: list(client.extract_stream("a", ["x"])),
        ):
            with pytest.raises(NotReady, match="is a server running there"):
                call()


def test_an_answer_that_does_not_come_is_one_error_of_ours():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout_s=0.05) as client, pytest.raises(DeadlineExceeded, match="timeout_s"):
            client.model()
