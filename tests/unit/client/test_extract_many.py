"""`extract_many` of both clients: order, bounds, retries, and what a text's neighbours in a request may change."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter

import httpx
import pytest

from gliner_bento.client import AsyncClient, Client, many
from gliner_bento.client.aimd import SendWindow, delay_s
from gliner_bento.errors import InvalidField, ModelNotLoaded, NotReady, QueueFull, Unauthorized

KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


class Server:
    """Answers each text with its words as entities, in any order of requests. capacity: texts under way, at most.

    faults: responses for the first requests. requests: the texts of each.
    """

    def __init__(self, capacity: int = 10_000, faults: tuple[httpx.Response | Exception, ...] = ()) -> None:
        self.capacity, self.faults = capacity, list(faults)
        self.requests: list[list[dict]] = []
        self.under_way = self.most_under_way = self.refused = 0
        self.bodies: list[dict] = []
        self.draw = random.Random(0)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        items = body["items"]
        self.bodies.append(body)
        self.requests.append(items)
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return fault
        if self.under_way and self.under_way + len(items) > self.capacity:
            self.refused += 1
            return error_response(429, QueueFull("full"))
        self.under_way += len(items)
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.draw.random() / 1000)
        self.under_way -= len(items)
        if any(item["text"] == "invalid" for item in items):
            return error_response(422, InvalidField("items: wrong", param="items"))
        return httpx.Response(200, json={"results": [self.result(item, items) for item in items], **ANSWER})

    def result(self, item: dict, items: list[dict]) -> dict:
        if item["text"] == "crowded" and len(items) > 1:
            return {"error": {"code": "limit_exceeded", "message": "entities: too many"}}
        if item["text"] == "poison":
            return {"error": {"code": "ends_process", "message": "not repeated"}}
        words = re.finditer(r"\S+", item["text"])
        entities = [
            {"start": word.start(), "end": word.end(), "text": word[0], "label": "word", "score": 1} for word in words
        ]
        return {"result": {"entities": entities}}


ANSWER = {"model": "words", "request_id": "r"}


def error_response(status: int, error, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": error.code, "message": error.message}}, headers=headers)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Pauses between attempts are recorded; they take no time."""
    pauses = []
    monkeypatch.setattr(many, "delay_s", lambda attempt, retry_after_s: pauses.append((attempt, retry_after_s)) or 0.0)
    return pauses


def client_of(kind, server, monkeypatch):
    transport = httpx.MockTransport(server)
    monkeypatch.setattr(
        httpx,
        "AsyncClient",
        lambda real=httpx.AsyncClient, **given: real(**{**given, "transport": transport}),
    )
    return kind("http://test")


def run(kind, server, texts, monkeypatch, most=None, **options):
    """The results, at most `most`."""
    taken = []
    client = client_of(kind, server, monkeypatch)
    if kind is Client:
        with client:
            for result in client.extract_many(texts, ["word"], **options):
                taken.append(result)
                if len(taken) == most:
                    break
    else:

        async def scene():
            async with client:
                results = client.extract_many(texts, ["word"], **options)
                async for result in results:
                    taken.append(result)
                    if len(taken) == most:
                        break
                await results.aclose()

        asyncio.run(scene())
    return taken


def words_of(results) -> list[str]:
    return [" ".join(entity.text for entity in one.result.entities) for one in results]


@KINDS
def test_what_is_not_a_text_is_an_error_of_its_own(kind, monkeypatch):
    texts = ["Ada", None, {"text": float("nan")}, 5, {"labels": ["x"]}, "half \ud83d", *["Bob"] * 20]
    results = run(kind, Server(), texts, monkeypatch)
    assert len(results) == len(texts)
    wrong = {index: result.error.message for index, result in enumerate(results) if result.error}
    assert wrong == {
        1: "texts.1: must be a text (str), not NoneType",
        2: "texts.2.text: must be a text (str), not float",
        3: "texts.3: must be a text (str), not int",
        4: "texts.4.text: must be a text (str), not NoneType",
    }
    assert [entity.text for entity in results[5].result.entities] == ["half", "\ufffd"]


@KINDS
def test_one_string_is_not_several_texts(kind):
    with pytest.raises(InvalidField, match="texts: must be several texts"):
        kind("http://test").extract_many("Ada", ["word"])


@KINDS
def test_results_come_in_the_order_of_the_texts(kind, monkeypatch):
    texts = [f"text {number}" for number in range(500)]
    server = Server()
    assert words_of(run(kind, server, iter(texts), monkeypatch, threshold=0.4)) == texts
    assert server.bodies[0]["threshold"] == 0.4
    assert server.bodies[0]["labels"] == ["word"]
    assert len(server.requests) < 50, "texts share requests"


@KINDS
def test_a_text_may_have_options_of_its_own(kind, monkeypatch):
    server = Server()
    run(kind, server, ["a", {"text": "b", "adapter_id": "x", "labels": ["y"]}], monkeypatch)
    assert server.requests == [[{"text": "a"}, {"text": "b", "adapter_id": "x", "labels": ["y"]}]]


@KINDS
def test_no_more_than_the_window_is_read_ahead(kind, monkeypatch):
    read = []
    texts = (read.append(number) or f"{number}" for number in range(10**9))
    assert words_of(run(kind, Server(), texts, monkeypatch, most=100, window=64)) == [str(n) for n in range(100)]
    assert len(read) <= 100 + 64 + 2 * many.MAX_TEXTS


@KINDS
def test_the_number_of_concurrent_texts_follows_what_the_server_accepts(kind, monkeypatch, no_pauses):
    server = Server(capacity=48)
    texts = [f"{number}" for number in range(3000)]
    assert words_of(run(kind, server, texts, monkeypatch)) == texts
    assert server.most_under_way > many.MAX_TEXTS
    assert 0 < server.refused < len(server.requests) / 3
    assert len(no_pauses) == server.refused


@KINDS
@pytest.mark.parametrize(
    ("fault", "retry_after_s"),
    [
        (error_response(429, QueueFull("full"), **{"Retry-After": "7"}), 7.0),
        (error_response(503, NotReady("starting"), **{"Retry-After": "2"}), 2.0),
        (error_response(503, ModelNotLoaded("evicted"), **{"Retry-After": "2"}), 2.0),
        (httpx.Response(502, text="<html>"), 0.0),
        (httpx.Response(503, text="", headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), 0.0),
        (httpx.ConnectError("refused", request=httpx.Request("POST", "http://test")), 0.0),
    ],
)
def test_what_is_refused_is_sent_again_after_retry_after(kind, fault, retry_after_s, monkeypatch, no_pauses):
    server = Server(faults=(fault, fault))
    assert words_of(run(kind, server, ["a b"], monkeypatch)) == ["a b"]
    assert no_pauses == [(0, retry_after_s), (1, retry_after_s)]


@KINDS
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (error_response(429, QueueFull("full")), QueueFull),
        (httpx.ConnectError("refused", request=httpx.Request("POST", "http://test")), NotReady),
    ],
)
def test_a_server_that_never_accepts_is_an_error(kind, fault, error, monkeypatch):
    server = Server(faults=(fault,) * 1000)
    with pytest.raises(error):
        run(kind, server, ["a"], monkeypatch, retry_s=-1)


@KINDS
def test_a_wrong_key_is_an_error_at_once(kind, monkeypatch):
    server = Server(faults=(error_response(401, Unauthorized("no key")),))
    with pytest.raises(Unauthorized, match="no key"):
        run(kind, server, ["a"], monkeypatch)
    assert len(server.requests) == 1


@KINDS
def test_a_text_that_fails_has_an_error_and_the_others_of_its_request_have_results(kind, monkeypatch):
    results = run(kind, Server(), ["a", "invalid", "b"], monkeypatch)
    assert [one.error.code if one.error else one.result.entities[0].text for one in results] == [
        "a",
        "invalid_field",
        "b",
    ]


@KINDS
def test_a_limit_that_the_texts_of_a_request_share_does_not_count(kind, monkeypatch):
    assert words_of(run(kind, Server(), ["a", "crowded", "b"], monkeypatch)) == ["a", "crowded", "b"]


@KINDS
def test_a_text_that_ends_processes_is_not_sent_again(kind, monkeypatch):
    server = Server()
    results = run(kind, server, ["a", "poison", "b"], monkeypatch)
    assert [one.error and one.error.code for one in results] == [None, "ends_process", None]
    assert len(server.requests) == 1


@KINDS
def test_an_error_of_the_texts_source_is_raised(kind, monkeypatch):
    def texts():
        yield from ["a"] * 40
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        run(kind, Server(), texts(), monkeypatch)


@KINDS
def test_a_window_needs_room(kind, monkeypatch):
    with pytest.raises(ValueError, match="window"):
        run(kind, Server(), ["a"], monkeypatch, window=0)


def test_texts_may_come_asynchronously(monkeypatch):
    async def texts():
        for number in range(40):
            await asyncio.sleep(0)
            yield f"{number}"

    assert words_of(run(AsyncClient, Server(), texts(), monkeypatch)) == [str(number) for number in range(40)]


def test_several_servers_share_the_texts_and_one_that_is_down_gets_few():
    texts = [f"{number}" for number in range(2000)]
    servers = [Server(), Server(), Server(faults=(httpx.Response(503),) * 1000)]

    async def scene():
        clients = [AsyncClient("http://test", transport=httpx.MockTransport(server)) for server in servers]
        sender = many.Sender([client.send for client in clients], ["word"], {})
        results = [one async for one in many.in_order(texts, sender, 512)]
        for client in clients:
            await client.aclose()
        return results

    assert words_of(asyncio.run(scene())) == texts
    sent = [sum(map(len, server.requests)) for server in servers]
    assert min(sent[:2]) > 500
    assert sent[2] < 500
    assert Counter(item["text"] for server in servers[:2] for items in server.requests for item in items) == Counter(
        texts
    )


def test_a_send_window_doubles_then_grows_by_steps_and_halves_once_per_overload():
    window = SendWindow(max_size=512, step=16)
    for _ in range(4):
        window.accepted(int(window.size))
    assert window.size == 512
    window.refused(decreases=0)
    window.refused(decreases=0)
    assert window.size == 256
    window.accepted(256)
    assert window.size == 272
    for number in range(1, 20):
        window.refused(decreases=number)
    assert window.size == 16


def test_a_delay_grows_has_jitter_and_is_not_before_retry_after():
    assert all(3 <= delay_s(0, 3.0) <= 3.25 for _ in range(100))
    assert max(delay_s(10, 0.0) for _ in range(100)) <= 8
    assert len({delay_s(1, 0.0) for _ in range(10)}) > 1


@KINDS
def test_an_answer_in_another_order_is_not_trusted(kind, monkeypatch):
    """Also the results without entities, which could be those of any text."""

    class Disordered(Server):
        async def __call__(self, request: httpx.Request) -> httpx.Response:
            content = json.loads((await super().__call__(request)).content)
            return httpx.Response(200, json={**content, "results": content["results"][::-1]})

    server = Disordered()
    assert words_of(run(kind, server, ["", "a b", "c", "d"], monkeypatch)) == ["", "a b", "c", "d"]
    assert sorted(map(len, server.requests)) == [1, 1, 1, 1, 4]


@KINDS
@pytest.mark.parametrize(
    "moved", [{"start": 1, "end": 2}, {"end": 9}, {"start": -1, "end": 0}, {"end": 0, "text": ""}, None]
)
def test_an_entity_that_is_not_at_its_offsets_and_no_result_are_errors_of_their_text(kind, monkeypatch, moved):
    class Wrong(Server):
        def result(self, item: dict, items: list[dict]) -> dict:
            result = super().result(item, items)
            if item["text"] == "wrong":
                if moved is None:
                    return {}
                result["result"]["entities"][0].update(moved)
            return result

    right, wrong = run(kind, Wrong(), ["right", "wrong"], monkeypatch)
    assert words_of([right]) == ["right"]
    assert wrong.result is None
    assert "has an empty result, or an entity that is not in the text" in wrong.error.message
