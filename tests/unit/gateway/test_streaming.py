"""`/v1/extract/stream`: lines as they are found, and an end to every one of them, whatever the runner does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from types import SimpleNamespace

import aiohttp
import httpx
import pytest

from gliner_bento.errors import Aborted, DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.gateway import runner as hop
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.runner import Hop
from runners.stream import line

PATH = "/v1/extract/stream"
BODY = {"text": "Ada met Charles.", "labels": ["person"]}
LONG_S = 60.0
FOUND = {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}
USAGE = {"words": 3, "tokens": 9, "windows": 2, "label_groups": 1, "relation_groups": 1}
RESULT = {
    "entities": [],
    "relations": [{"relation": "met", "score": 0.8, "head": 0, "tail": 1}],
    "truncated_at": None,
    **USAGE,
}
FIRST = line({"entities": [FOUND]})
LAST = line({"outcome": {"result": RESULT | {"relations": []}}})


class Scripted:
    """A runner that says `script`: strings as they are; an exception is raised, an event is waited for."""

    def __init__(self, *script: str | Exception | asyncio.Event) -> None:
        self.script = script
        self.timeouts_ms: list[float] = []
        self.streams: list[str] = []
        self.stopped: list[str] = []
        self.ended = False

    async def extract_stream(self, item, request_id, stream_id, timeout_ms, priority):
        self.timeouts_ms.append(timeout_ms)
        self.streams.append(stream_id)
        try:
            for said in self.script:
                if isinstance(said, asyncio.Event):
                    await said.wait()
                elif isinstance(said, Exception):
                    raise said
                else:
                    yield said
        finally:
            self.ended = True

    async def stop_stream(self, stream_id):
        self.stopped.append(stream_id)

    async def describe(self):
        return {"name": "scripted"}


def ask(client, **sent):
    return asyncio.run(client.request("POST", PATH, **({"json": BODY} | sent)))


def lines_of(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert response.text.endswith("\n")
    return [json.loads(written) for written in response.text.split("\n")[:-1]]


@pytest.fixture
def serving(limits, served):
    """Makes a client of a gateway over a runner."""

    def serve(runner):
        transport = httpx.ASGITransport(served(Gateway(Hop(runner), limits)))
        return httpx.AsyncClient(transport=transport, base_url="http://test")

    return serve


def parts_of(runner):
    """What the hop makes of what the runner says, and how that ended."""

    async def scene():
        parts = []
        try:
            async for part in Hop(runner).extract_stream(None, request_id="r", timeout_ms=LONG_S * 1000, priority=0):
                parts.append(part)
        except Exception as error:
            return parts, error
        return parts, None

    return asyncio.run(asyncio.wait_for(scene(), LONG_S))


@pytest.mark.parametrize("body", [BODY, BODY | {"relations": ["met"]}, BODY | {"text": "nobody"}, BODY | {"text": " "}])
def test_the_lines_are_what_extract_answers(client, body):
    *entities, end = lines_of(ask(client, json=body | {"request_id": "r1"}))
    answer = asyncio.run(client.post("/gliner", json=body)).json()
    assert [told["entity"] for told in entities] == answer["entities"]
    assert set(end) == {"relations", "truncated", "truncated_at", "usage", "model", "adapter_id", "request_id"}
    assert (end["truncated"], end["truncated_at"], end["model"], end["request_id"]) == (False, None, "echo", "r1")
    assert [found["relation"] for found in end["relations"]] == body.get("relations", [])
    for relation in end["relations"]:
        for side in ("head", "tail"):
            index = relation[side].pop("entity_idx")
            assert relation[side].items() <= entities[index]["entity"].items()


def test_a_text_that_is_cut_says_where(client):
    body = BODY | {"text": "one two three four five six seven eight nine", "long_text": "truncate"}
    (end,) = lines_of(ask(client, json=body))
    assert (end["truncated"], end["truncated_at"]) == (True, 39)


def test_relations_count_all_entities_that_came_before(serving):
    second = FOUND | {"start": 8, "end": 15, "text": "Charles"}
    runner = Scripted(
        FIRST, line({"entities": []}), line({"entities": [second]}), line({"outcome": {"result": RESULT}})
    )
    *entities, end = lines_of(ask(serving(runner)))
    assert [told["entity"]["text"] for told in entities] == ["Ada", "Charles"]
    (relation,) = end["relations"]
    assert [relation[side]["text"] for side in ("head", "tail")] == ["Ada", "Charles"]
    assert [relation[side]["entity_idx"] for side in ("head", "tail")] == [0, 1]
    assert end["usage"] == USAGE


def test_a_stream_that_is_dropped_before_it_began_is_asked_for_again():
    class DroppedOnce(Scripted):
        async def extract_stream(self, item, request_id, stream_id, timeout_ms, priority):
            said = super().extract_stream(item, request_id, stream_id, timeout_ms, priority)
            if not self.streams:
                self.streams.append(stream_id)
                raise aiohttp.ServerDisconnectedError
            async for piece in said:
                yield piece

    runner = DroppedOnce(FIRST, LAST)
    parts, error = parts_of(runner)
    assert [*parts[0]] == ["entities"]
    assert error is None
    assert len(set(runner.streams)) == 2
    assert not runner.stopped


def test_a_line_has_no_other_line_ends_in_it(serving):
    """Clients take U+2028 and its like for one."""
    odd = FOUND | {"text": "S\u00e3o\u2028Pau\u0085lo\n"}
    response = ask(serving(Scripted(line({"entities": [odd]}), LAST)))
    assert lines_of(response)[0] == {"entity": odd}
    assert len(response.text.splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "status", "param"),
    [
        (b"{", 400, None),
        (b"", 422, "labels"),
        (b"[1]", 422, None),
        (b'{"text": "a", "labels": ["x"], "thresold": 1}', 422, "thresold"),
        (b'{"text": "a", "labels": ["x"], "window_words": 0}', 422, "window_words"),
        (b'{"text": "a", "labels": ["x"], "window_overlap_words": -1}', 422, "window_overlap_words"),
        (b'{"text": "a", "labels": ["x"], "long_text": "whole"}', 422, "long_text"),
        (b'{"text": "' + b"a" * 101 + b'", "labels": ["x"]}', 413, "text"),
        (b'{"text": "a", "labels": ["1", "2", "3", "4", "5", "6"]}', 422, "labels"),
        (b'{"text": "a", "labels": ["x"], "adapter_id": "unknown"}', 404, "adapter_id"),
        (b'{"text": "a", "labels": ["' + b"x" * 1000 + b'"]}', 413, None),
        (b'{"text": "\xff", "labels": ["x"]}', 400, None),
    ],
)
def test_an_error_before_the_first_line_is_the_answer(client, content, status, param):
    response = ask(client, json=None, content=content, headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param)
    assert error["request_id"] == response.headers["x-request-id"]


def test_only_json_is_read(client):
    response = ask(client, json=None, content=b"a=b", headers={"Content-Type": "text/plain"})
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


ERRORS = {
    "the item's own": (line({"outcome": {"error": Aborted("stopped").detail("r").model_dump()}}), 499, "aborted"),
    "the connection's": (aiohttp.ServerDisconnectedError(), 503, "not_ready"),
    "a broken answer": (aiohttp.ClientPayloadError(), 503, "not_ready"),
    "the system's": (ConnectionResetError(), 503, "not_ready"),
    "a fault": (ValueError("a secret"), 500, "internal"),
    "an early end": ("", 500, "internal"),
}


@pytest.mark.parametrize(("said", "status", "code"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_after_the_first_line_is_the_last_line(serving, said, status, code):
    runner = Scripted(FIRST, said)
    entity, last = lines_of(ask(serving(runner), json=BODY | {"request_id": "mine"}))
    assert entity == {"entity": FOUND}
    assert set(last) == {"error"}
    assert (last["error"]["code"], last["error"]["request_id"]) == (code, "mine")
    assert "secret" not in last["error"]["message"]
    assert runner.ended


@pytest.mark.parametrize(("said", "status", "code"), ERRORS.values(), ids=ERRORS.keys())
def test_the_same_error_before_it_is_the_answer(serving, said, status, code):
    response = ask(serving(Scripted(said)))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert error["request_id"] == response.headers["x-request-id"]


def test_a_runner_that_hangs_costs_a_request_its_deadline(serving, monkeypatch):
    monkeypatch.setattr(hop, "_GRACE_S", 0.01)
    first = Scripted(asyncio.Event())
    response = ask(serving(first), json=BODY | {"timeout_ms": 10})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")
    later = Scripted(FIRST, asyncio.Event())
    readings_s = iter([0.0, 0.0, 1e9])  # at the start, before the first piece, before the second
    monkeypatch.setattr(hop, "time", SimpleNamespace(monotonic=lambda: next(readings_s)))
    entity, last = lines_of(ask(serving(later)))
    assert (entity, last["error"]["code"]) == ({"entity": FOUND}, "deadline_exceeded")
    assert first.ended
    assert later.ended, "the runner's side has to learn that nobody waits any more"


def test_the_runner_is_told_the_deadline(serving):
    runner = Scripted(FIRST, LAST)
    client = serving(runner)
    ask(client, json=BODY | {"timeout_ms": 500})
    ask(client, json=BODY | {"timeout_ms": 10**9})
    assert runner.timeouts_ms == [500, 30_000]


@pytest.mark.parametrize("size", [1, 2, 17, 10_000])
def test_pieces_may_be_cut_anywhere(size):
    said = FIRST * 3 + line({"entities": []}) + LAST
    parts, error = parts_of(Scripted(*(said[start : start + size] for start in range(0, len(said), size))))
    assert error is None
    assert parts == [{"entities": [FOUND]}] * 3 + [
        {"entities": []},
        {"outcome": {"result": RESULT | {"relations": []}}},
    ]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ([], InternalError),
        ([FIRST, LAST[:-2]], InternalError),
        ([FIRST, ConnectionResetError()], NotReady),
        ([FIRST, aiohttp.ClientPayloadError()], NotReady),
        ([FIRST, asyncio.TimeoutError()], DeadlineExceeded),
    ],
    ids=str,
)
def test_a_stream_without_an_outcome_ends_with_an_error(said, kind):
    parts, error = parts_of(Scripted(*said))
    assert parts == [{"entities": [FOUND]}] * (FIRST in said)
    assert type(error) is kind


def connection(app, *, on_line):
    """Serve one POST over bare ASGI; `on_line` is called for each line, and leaves by returning true."""

    async def scene():
        left = asyncio.Event()
        bodies = [json.dumps(BODY).encode()]

        async def receive():
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message.get("body") and on_line(json.loads(message["body"])):
                left.set()

        scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "root_path": ""}
        scope |= {"headers": [], "query_string": b"", "http_version": "1.1"}
        await asyncio.wait_for(app(scope, receive, send), LONG_S)

    asyncio.run(scene())


def test_a_line_leaves_before_the_next_is_found(limits, served):
    next_is_found, seen = asyncio.Event(), []

    def on_line(told):
        seen.append(set(told))
        next_is_found.set()

    connection(served(Gateway(Hop(Scripted(FIRST, next_is_found, LAST)), limits)), on_line=on_line)
    assert seen[0] == {"entity"}
    assert len(seen) == 2


def test_a_client_that_leaves_ends_the_runners_stream(limits, served):
    runner = Scripted(FIRST, asyncio.Event())
    connection(served(Gateway(Hop(runner), limits)), on_line=lambda told: True)
    assert runner.ended
    assert runner.stopped == runner.streams


@pytest.mark.parametrize(
    ("said", "most", "stops"),
    [
        ([FIRST, FIRST, LAST], 1, True),
        ([FIRST, FIRST, LAST], 3, False),
        ([FIRST, LAST], None, False),
        ([FIRST], None, True),
        ([FIRST, ConnectionResetError()], None, True),
    ],
    ids=str,
)
def test_the_runner_is_told_if_its_stream_is_not_read_to_the_end(said, most, stops):
    """Its connection may stay open: BentoML's client does not close it."""
    runner = Scripted(*said)

    async def scene():
        parts = Hop(runner).extract_stream(None, request_id="r", timeout_ms=LONG_S * 1000, priority=0)
        with contextlib.suppress(GLiNERBentoError):
            async with contextlib.aclosing(parts):
                count = 0
                async for _ in parts:
                    count += 1
                    if count == most:
                        break
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(scene())
    assert runner.stopped == runner.streams * stops


def test_a_runner_that_cannot_be_told_does_no_harm(caplog):
    runner = Scripted(FIRST, ConnectionResetError())

    async def unreachable(stream_id):
        raise ConnectionResetError

    runner.stop_stream = unreachable
    parts, error = parts_of(runner)
    assert (len(parts), type(error)) == (1, NotReady)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_two_streams_of_one_request_id_have_ids_of_their_own(serving):
    runner = Scripted(FIRST, LAST)
    client = serving(runner)
    for _ in range(2):
        ask(client, json=BODY | {"request_id": "same"})
    assert len(set(runner.streams)) == 2
