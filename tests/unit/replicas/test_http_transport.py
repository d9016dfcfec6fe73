"""The transport between gateway and runner: framing, deadlines, and no foreign exception beyond it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from memory_adapters import MemoryManager
from memory_replica import MemoryReplica
from serving import call, item, run, served

from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    NotReady,
    StorageFull,
)
from gliner_bento.replicas.base import Call
from gliner_bento.replicas.http import client
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.messages import (
    CallMessage,
    ExtractMessage,
    Frames,
    Outcomes,
    Reply,
    StreamPart,
    encode,
    frame,
)
from gliner_bento.types import Entity, Extraction, Item, Relation, RelationArgument, Usage

T = TypeVar("T")

ADA = Entity(0, 3, "Ada", "person", 0.9)
RESULT = Extraction(
    [ADA],
    [Relation("met", 0.8, *(RelationArgument(i, 0, 3, "Ada", "person") for i in (0, 0)))],
    truncated=True,
    truncated_at=7,
    usage=Usage(3, 9, 2, 1, 1),
)
FIRST = frame(encode(StreamPart([ADA])))
LAST = frame(encode(StreamPart(last=Reply(result=RESULT))))


def in_pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


# Frames


@pytest.mark.parametrize("size", [1, 2, 17, 10_000])
def test_frames_may_be_cut_and_merged_anywhere(size: int):
    messages = [b"one", b"", b"x" * 70_000, b"\n\0", b"last"]
    frames = Frames()
    pieces = in_pieces(b"".join(map(frame, messages)), size)
    assert [message for piece in pieces for message in frames.add(piece)] == messages


def test_a_frame_is_complete_with_its_last_byte():
    content, frames = frame(b"abc"), Frames()
    for piece in in_pieces(content[:-1], 1):
        assert list(frames.add(piece)) == []
    assert list(frames.add(content[-1:])) == [b"abc"]


@pytest.mark.parametrize(
    "outcome",
    [RESULT, Extraction(), Aborted("stopped"), StorageFull("no room", param="adapter")],
    ids=["a result", "an empty result", "an error", "an error of a field"],
)
def test_an_outcome_survives_the_transport(outcome):
    sent = encode([Reply.of(outcome)])
    (reply,) = msgspec.msgpack.decode(sent, type=list[Reply[Extraction]])
    arrived = reply.outcome()
    assert type(arrived) is type(outcome)
    if isinstance(outcome, GLiNERBentoError):
        assert arrived.detail() == outcome.detail()
        with pytest.raises(type(outcome)):
            reply.unwrap()
    else:
        assert [list(arrived.entities), list(arrived.relations)] == [list(outcome.entities), list(outcome.relations)]
        assert (arrived.usage, arrived.truncated, arrived.truncated_at) == (
            outcome.usage,
            outcome.truncated,
            outcome.truncated_at,
        )


def test_an_item_survives_the_transport():
    """Every field: none has its default here."""
    sent = Item(
        text="日本 é 🙂\u2028",
        labels={"b": "2", "a": "1"},
        relations={"r": "of"},
        threshold=0.25,
        relation_threshold=1.0,
        flat_ner=False,
        multi_label=True,
        adapter_id="a",
        long_text="reject",
        window_words=7,
        window_overlap_words=0,
        on_limit="truncate",
        max_entities=1,
        max_relations=0,
        label_thresholds={"b": 0.1},
        relation_thresholds={"r": 0.9},
        relation_heads={"r": [0]},
        relation_tails={"r": [1]},
    )
    assert all(getattr(sent, field) != getattr(item(), field) for field in Item.__dataclass_fields__)
    arrived = msgspec.msgpack.decode(encode(ExtractMessage([sent], CallMessage.of(call()))), type=ExtractMessage).items[
        0
    ]
    assert arrived == sent
    assert list(arrived.labels) == ["b", "a"]


# A server that does what no server should


class Drop(Exception):
    """Close the connection."""


Step = bytes | type[Drop] | asyncio.Event
"""A piece of the response; `Drop`; what is waited for, until the client leaves."""


class Scripted:
    """An HTTP server: the n-th request is answered by the n-th of `scripts`, later ones by the last.

    requests: bodies. left: clients that left while a script waited.
    """

    def __init__(self, *scripts: list[Step], status: str = "200 OK") -> None:
        self.scripts = scripts
        self.status = status
        self.requests: list[bytes] = []
        self.left = 0

    @asynccontextmanager
    async def replica(self, folder: Path) -> AsyncIterator[HttpReplica]:
        server = await asyncio.start_unix_server(self._serve, folder / "socket", limit=2**26)
        replica = HttpReplica((folder / "socket").as_uri(), "/replica")
        try:
            async with server:
                yield replica
        finally:
            await replica.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Drop, asyncio.IncompleteReadError):
            while True:
                self.requests.append(await _body(reader))
                script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
                await self._answer(script, reader, writer)
        writer.close()

    async def _answer(self, script: list[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun = False
        for step in script:
            if step is Drop:
                raise Drop
            if not begun:
                writer.write(f"HTTP/1.1 {self.status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
                begun = True
            if isinstance(step, bytes):
                writer.write(b"%x\r\n%s\r\n" % (len(step), step))
                await writer.drain()
                await asyncio.sleep(0)
            else:
                await reader.read()
                self.left += 1
                raise Drop
        writer.write(b"0\r\n\r\n" if begun else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r")[0]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def ask(scripted: Scripted, folder: Path, question: Callable[[HttpReplica], Awaitable[T]]) -> T:
    async def scene() -> T:
        async with scripted.replica(folder) as replica:
            return await question(replica)

    return run(scene)


def extract(replica: HttpReplica) -> Awaitable[Any]:
    return replica.extract([item()], call())


def abort(replica: HttpReplica) -> Awaitable[Any]:
    return replica.abort("r")


HANG: Step = asyncio.Event()
ANSWERS = {abort: [encode(Reply(result=True))], extract: [encode(Outcomes([Reply(result=RESULT)]))]}
QUESTIONS = pytest.mark.parametrize("question", [abort, extract])


# Calls


@QUESTIONS
@pytest.mark.parametrize("begun", [True, False])
def test_a_call_whose_connection_was_dropped_is_not_ready(question, begun: bool, tmp_path: Path):
    scripted = Scripted([*[ANSWERS[question][0][:1]] * begun, Drop], ANSWERS[question])
    with pytest.raises(NotReady):
        ask(scripted, tmp_path, question)
    assert len(scripted.requests) == 1, "its caller repeats it"


@QUESTIONS
@pytest.mark.parametrize("over", ["a socket", "tcp"])
def test_a_runner_that_does_not_listen_is_not_ready(question, over: str, tmp_path: Path):
    url = "http://127.0.0.1:1" if over == "tcp" else (tmp_path / "none").as_uri()

    async def scene():
        replica = HttpReplica(url)
        try:
            with pytest.raises(NotReady):
                await question(replica)
        finally:
            await replica.close()

    run(scene)


@QUESTIONS
@pytest.mark.parametrize("status", ["500 Internal Server Error", "404 Not Found"])
def test_any_other_fault_is_an_internal_error_and_is_not_repeated(question, status, tmp_path: Path, caplog):
    scripted = Scripted([b"a secret"], status=status)
    with pytest.raises(InternalError) as caught:
        ask(scripted, tmp_path, question)
    assert len(scripted.requests) == 1
    assert "secret" not in caught.value.message
    assert status[:3] in caplog.text


@QUESTIONS
@pytest.mark.parametrize("script", [[b"\xc1"], []], ids=str)
def test_an_answer_that_cannot_be_decoded_is_an_internal_error(question, script, tmp_path: Path):
    with pytest.raises(InternalError):
        ask(Scripted(script), tmp_path, question)


def test_a_stuck_runner_costs_a_request_its_deadline_and_no_more(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.05)
    scripted = Scripted([HANG])

    async def question(replica: HttpReplica) -> None:
        with pytest.raises(DeadlineExceeded):
            await replica.extract([item()], call(timeout_s=0.05))
        while not scripted.left:  # the runner must see that its caller is gone
            await asyncio.sleep(0.001)

    ask(scripted, tmp_path, question)


def test_a_stuck_runner_is_not_ready(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(client.Connection.control, "__kwdefaults__", {"timeout_s": 0.05, "late": None})
    with pytest.raises(NotReady):
        ask(Scripted([HANG]), tmp_path, lambda replica: replica.status())


def test_a_stuck_removal_ends_by_its_deadline(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.05)
    with pytest.raises(DeadlineExceeded):
        ask(Scripted([HANG]), tmp_path, lambda replica: replica.adapters.remove("a", 0.01))


def test_the_runner_gets_what_is_left_until_the_deadline(tmp_path: Path):
    memory, app = MemoryReplica(), ReplicaApp()
    app.bind(memory)
    server = served(app, tmp_path / "socket")
    replica = HttpReplica(server.url)
    request = call("mine", timeout_s=5, priority=-3, tenant="team-a", weight=2.5, crosses_tenants=True)
    run(lambda: replica.extract([item()], request))
    arrived_s = time.monotonic()
    run(replica.close)
    server.stop()
    ((items, received),) = memory.calls
    assert list(items) == [item()]
    assert replace(received, deadline_s=request.deadline_s) == request
    assert request.deadline_s <= received.deadline_s <= request.deadline_s + (arrived_s + 5 - request.deadline_s)


def test_no_call_waits_for_another(tmp_path: Path):
    """aiohttp's default is 100 connections."""
    memory, app = MemoryReplica(step=lambda: False), ReplicaApp()
    app.bind(memory)
    server = served(app, tmp_path / "socket")
    replica = HttpReplica(server.url)

    async def scene():
        waiting = [asyncio.ensure_future(replica.extract([item()], call(str(number)))) for number in range(300)]
        while len(memory.calls) < 300:
            await asyncio.sleep(0.01)
        status = await replica.status()
        assert status.waiting_items + status.running_items == 300
        assert await replica.abort("299")
        assert isinstance((await waiting[299])[0], Aborted)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(scene)
    run(replica.close)
    server.stop()


def test_a_caller_that_left_before_its_body_was_read_is_no_fault(tmp_path: Path, caplog):
    """As those do that wait while the model loads."""
    app, sent = ReplicaApp(), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/call/status", "headers": [], "query_string": b""}
    run(lambda: app(scope, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [499]
    assert caplog.text == ""


# Archives

PIECE = 2**20


async def archive(*pieces: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if error:
        raise error


INSTALLED = [encode(Reply(result=MemoryManager().change("a", b"one")))]


def install(*pieces: bytes, error: Exception | None = None) -> Callable[[HttpReplica], Awaitable[Any]]:
    return lambda replica: replica.adapters.install("a", archive=archive(*pieces, error=error), pinned=True)


def test_an_archive_follows_its_arguments(tmp_path: Path):
    scripted = Scripted(INSTALLED)
    ask(scripted, tmp_path, install(b"a" * 10, b"b" * 3 * PIECE, b"c"))
    frames = Frames()
    arguments = next(frames.add(scripted.requests[0]))
    assert msgspec.msgpack.decode(arguments) == {"adapter_id": "a", "pinned": True}
    assert frames.rest == b"a" * 10 + b"b" * 3 * PIECE + b"c"


def test_an_archive_whose_connection_was_dropped_is_not_repeated(tmp_path: Path):
    """It has been read from the client, who can repeat its PUT."""
    scripted = Scripted([Drop], INSTALLED)
    with pytest.raises(NotReady):
        ask(scripted, tmp_path, install(b"one"))
    assert len(scripted.requests) == 1


def test_an_archive_that_the_runner_refuses_is_sent_no_further(tmp_path: Path):
    sent = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sent.append(PIECE)
            yield b"x" * PIECE
            await asyncio.sleep(0)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(PIECE)
        body = encode(Reply.of(StorageFull("no room")))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        while await reader.read(PIECE):
            pass
        writer.close()

    async def scene():
        replica = HttpReplica((tmp_path / "socket").as_uri())
        async with await asyncio.start_unix_server(refuse, tmp_path / "socket"):
            with pytest.raises(StorageFull, match="no room"):
                await replica.adapters.install("a", archive=endless())
            before = len(sent)
            await asyncio.sleep(0.05)
            assert len(sent) == before
        await replica.close()

    run(scene)


@pytest.mark.parametrize("pieces", [(), (b"x" * 2 * PIECE,)], ids=len)
def test_a_broken_off_archive_raises_its_own_error_and_is_not_complete(pieces, tmp_path: Path):
    scripted = Scripted(INSTALLED)
    with pytest.raises(ZeroDivisionError, match="the client"):
        ask(scripted, tmp_path, install(*pieces, error=ZeroDivisionError("the client")))
    assert scripted.requests == []


# Streams


def streamed(scripted: Scripted, folder: Path, request: Call | None = None) -> tuple[list[Any], Exception | None]:
    """The parts of a stream, and how it ended."""

    async def scene(replica: HttpReplica) -> tuple[list[Any], Exception | None]:
        parts: list[Any] = []
        try:
            async for part in replica.stream(item(), request or call()):
                parts.append(part)
        except Exception as error:
            return parts, error
        return parts, None

    return ask(scripted, folder, scene)


@pytest.mark.parametrize("size", [1, 2, 17, 10_000])
def test_a_stream_may_be_cut_anywhere(size: int, tmp_path: Path):
    content = FIRST * 3 + frame(encode(StreamPart([]))) + LAST
    parts, error = streamed(Scripted(in_pieces(content, size)), tmp_path)
    assert error is None
    assert [list(part) for part in parts[:-1]] == [[ADA]] * 3 + [[]]
    assert replace(parts[-1], warnings=()) == RESULT


ENDINGS: dict[str, tuple[list[Step], type[GLiNERBentoError]]] = {
    "nothing": ([], InternalError),
    "half a message": ([FIRST, LAST[:-2]], InternalError),
    "the item's own error": ([FIRST, frame(encode(StreamPart(last=Reply.of(Aborted("stopped")))))], Aborted),
    "a dropped connection": ([FIRST, Drop], NotReady),
    "a connection that was dropped before it began": ([Drop], NotReady),
    "what cannot be decoded": ([FIRST, frame(b"\xc1")], InternalError),
}


@pytest.mark.parametrize(("script", "kind"), ENDINGS.values(), ids=ENDINGS.keys())
def test_a_stream_without_a_result_ends_with_an_error(script, kind: type[GLiNERBentoError], tmp_path: Path):
    scripted = Scripted(script)
    parts, error = streamed(scripted, tmp_path)
    arrived = [[ADA]] * (FIRST in script)
    assert [list(part) for part in parts] in ([arrived, []] if Drop in script else [arrived])
    assert type(error) is kind
    assert len(scripted.requests) == 1, "its caller repeats it"


@pytest.mark.parametrize("begun", [True, False])
def test_a_runner_that_hangs_costs_a_stream_its_deadline(begun: bool, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.05)
    scripted = Scripted([FIRST, HANG] if begun else [HANG])
    parts, error = streamed(scripted, tmp_path, call(timeout_s=0.05))
    assert [list(part) for part in parts] == [[ADA]] * begun
    assert type(error) is DeadlineExceeded


@pytest.mark.parametrize("script", [[FIRST, FIRST, HANG], [FIRST, FIRST, LAST, HANG]], ids=len)
def test_a_stream_that_is_not_read_to_its_end_closes_its_connection(script, tmp_path: Path):
    scripted = Scripted(script)

    async def scene(replica: HttpReplica) -> None:
        async with contextlib.aclosing(replica.stream(item(), call())) as parts:
            await parts.__anext__()
        while not scripted.left:
            await asyncio.sleep(0.001)

    ask(scripted, tmp_path, scene)
