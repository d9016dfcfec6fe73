"""`/v1/extract/stream`: lines as entities become final, and an end to every stream, whatever the replica does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from doubles.memory_replica import MemoryReplica

from gliner_bento.errors import Aborted, InternalError, NotReady
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.extraction import PARTS, Entity, Extraction, Relation, RelationArgument

PATH = "/v1/extract/stream"
BODY = {"text": "Ada met Charles.", "labels": ["person"]}
LONG_S = 60.0
ADA = Entity(0, 3, "Ada", "person", 0.9)
CHARLES = Entity(8, 15, "Charles", "person", 0.8)
FOUND = {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}
USAGE = {"words": 3, "tokens": 9, "windows": 2, "passes": 2, "label_groups": 1, "relation_groups": 1}
LAST = Extraction((), usage=Usage(**USAGE))


class ScriptedReplica(MemoryReplica):
    """A replica whose streams are a script: parts as they are; an exception is raised, an event is waited for."""

    def __init__(self, *script: Sequence[Entity] | Extraction | Exception | asyncio.Event) -> None:
        super().__init__()
        self.script = script
        self.ended = False

    async def stream(self, item, call):
        self.calls.append(([item], call))
        try:
            for step in self.script:
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
        finally:
            self.ended = True


def ask(client, **sent):
    return asyncio.run(client.request("POST", PATH, **({"json": BODY} | sent)))


def lines_of(response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert response.text.endswith("\n")
    return [json.loads(written) for written in response.text.split("\n")[:-1]]


LONG = "Ada one two three four five six seven Bob nine"  # two windows


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        BODY | {"relations": ["met"]},
        BODY | {"text": "nobody"},
        BODY | {"text": " "},
        BODY | {"text": LONG},
        BODY | {"text": LONG, "long_text": "truncate"},
    ],
)
def test_the_lines_are_what_extract_answers(client, body):
    *entities, end = lines_of(ask(client, json=body | {"request_id": "r1"}))
    answer = asyncio.run(client.post("/v1/extract", json=body | {"request_id": "r1"})).json()
    assert [line["entity"] for line in entities] == answer.pop("entities")
    assert end == answer
    described = {"truncated", "truncated_at", "usage", "warnings", "model", "adapter_id", "request_id"}
    assert set(end) == {part.result for part in PARTS if part.result} - {"entities"} | described
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
    sides = (
        RelationArgument(index, one.start, one.end, one.text, one.label) for index, one in enumerate((ADA, CHARLES))
    )
    last = Extraction([CHARLES], [Relation("met", 0.8, *sides)], usage=Usage(**USAGE))
    *entities, end = lines_of(ask(serving(ScriptedReplica([ADA], [], last))))
    assert [line["entity"]["text"] for line in entities] == ["Ada", "Charles"]
    (relation,) = end["relations"]
    assert [relation[side]["text"] for side in ("head", "tail")] == ["Ada", "Charles"]
    assert [relation[side]["entity_idx"] for side in ("head", "tail")] == [0, 1]
    assert end["usage"] == USAGE


@pytest.mark.parametrize("text", ["S\u00e3o\u2028Pau\u0085lo\n", "日本 é 🙂", "a\nb\r\nc", "\u2028\u0085\x1c", '"\\'])
def test_a_line_is_ascii_and_one_line(serving, text):
    """Clients take U+2028 and its like for ends of lines."""
    odd = Entity(0, 3, text, "person", 0.9)
    response = ask(serving(ScriptedReplica([odd], LAST)))
    assert lines_of(response)[0]["entity"]["text"] == text
    assert response.content.isascii()
    assert len(response.text.splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "status", "param"),
    [
        (b"{", 400, None),
        (b"", 422, "text"),
        (b'{"text": "a"}', 422, "labels"),
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
    "the item's own": (Aborted("stopped"), 499, "aborted"),
    "the replica's": (NotReady("cannot be reached"), 503, "not_ready"),
    "a fault of the replica": (InternalError(), 500, "internal"),
}


@pytest.mark.parametrize(("error", "status", "code"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_after_the_first_line_is_the_last_line(serving, error, status, code):
    replica = ScriptedReplica([ADA], error)
    entity, last = lines_of(ask(serving(replica), json=BODY | {"request_id": "mine"}))
    assert entity == {"entity": FOUND}
    assert set(last) == {"error"}
    assert (last["error"]["code"], last["error"]["request_id"]) == (code, "mine")
    assert replica.ended


@pytest.mark.parametrize(("error", "status", "code"), ERRORS.values(), ids=ERRORS.keys())
def test_the_same_error_before_it_is_the_answer(serving, error, status, code):
    response = ask(serving(ScriptedReplica(error)))
    body = response.json()["error"]
    assert (response.status_code, body["code"]) == (status, code)
    assert body["request_id"] == response.headers["x-request-id"]


def test_a_deadline_is_the_answer_or_the_last_line(client, replica):
    replica.step = lambda: False
    response = ask(client, json=BODY | {"timeout_ms": 10})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")
    steps = iter([True])
    for timeout_ms in (200, 1000, 5000, 25_000):  # on a slow machine it passes before the first line
        steps = iter([True])
        replica.step = lambda steps=steps: next(steps, False)
        response = ask(client, json=BODY | {"text": LONG, "timeout_ms": timeout_ms})
        if response.status_code == 200:
            break
    entity, last = lines_of(response)
    assert (entity["entity"]["text"], last["error"]["code"]) == ("Ada", "deadline_exceeded")


def connection(app, *, on_line, on_start=lambda: None):
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
            if message["type"] == "http.response.start":
                on_start()
            if message.get("body") and on_line(json.loads(message["body"])):
                left.set()

        scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "root_path": ""}
        scope |= {"headers": [], "query_string": b"", "http_version": "1.1"}
        await asyncio.wait_for(app(scope, receive, send), LONG_S)

    asyncio.run(scene())


def test_a_line_is_sent_before_the_next_is_predicted(app):
    next_is_found, seen = asyncio.Event(), []

    def on_line(line):
        seen.append(set(line))
        next_is_found.set()

    app.bind(ScriptedReplica([ADA], next_is_found, LAST))
    connection(app, on_line=on_line)
    assert seen[0] == {"entity"}
    assert len(seen) == 2


def test_the_headers_do_not_wait_for_the_first_entity(app):
    """A server in front of ours, BentoML's timeout too, waits for them."""
    begun = asyncio.Event()
    app.bind(ScriptedReplica([], begun, [ADA], LAST))
    seen = []
    connection(app, on_line=seen.append, on_start=begun.set)
    assert [set(line) for line in seen][:1] == [{"entity"}]


def test_a_client_that_leaves_ends_the_replicas_stream(app, caplog):
    caplog.set_level(logging.INFO, "gliner_bento.access")
    replica = ScriptedReplica([ADA], asyncio.Event())
    app.bind(replica)
    connection(app, on_line=lambda line: True)
    assert replica.ended
    (line,) = [record.fields for record in caplog.records if record.name == "gliner_bento.access"]
    assert (line["status"], line["error"]) == (200, "aborted")


def test_a_client_that_stops_reading_and_leaves_ends_the_replicas_stream(app):
    """The line is held up in the connection, and nothing waits for the replica."""
    replica = ScriptedReplica([ADA], [CHARLES], LAST)
    app.bind(replica)

    async def scene():
        held_up, bodies = asyncio.Event(), [json.dumps(BODY).encode()]

        async def receive():
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await held_up.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message.get("body"):
                held_up.set()
                await asyncio.Event().wait()

        scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "root_path": ""}
        scope |= {"headers": [], "query_string": b"", "http_version": "1.1"}
        await asyncio.wait_for(app(scope, receive, send), LONG_S)
        for _ in range(10):
            await asyncio.sleep(0)
        assert replica.ended

    asyncio.run(scene())
