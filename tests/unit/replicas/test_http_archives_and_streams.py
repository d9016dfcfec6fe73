"""Archives and streams over the transport: complete, or ended with one error, and never repeated by it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doubles.memory_adapters import MemoryManager
from doubles.scripted_server import ADA, HANG, RESULT, Drop, Scripted, Step, ask, in_pieces
from replica_calls import arriving, call, item, run, until

from gliner_bento.commands import InstallAdapter
from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    NotReady,
    StorageFull,
)
from gliner_bento.replicas import remote
from gliner_bento.replicas.base import Call
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.messages import Frames, Reply, StreamMessage, encode, frame

# Archives

PIECE = 2**20
INSTALLED = [encode(Reply(result=MemoryManager().change("a", b"one")))]


def install(*pieces: bytes, error: Exception | None = None) -> Callable[[HttpReplica], Awaitable[Any]]:
    return lambda replica: replica.apply(InstallAdapter("a", pinned=True), arriving(*pieces, error=error))


def test_an_archive_follows_its_command(tmp_path: Path):
    scripted = Scripted(INSTALLED)
    ask(scripted, tmp_path, install(b"a" * 10, b"b" * 3 * PIECE, b"c"))
    frames = Frames()
    arguments = next(frames.add(scripted.requests[0]))
    assert msgspec.msgpack.decode(arguments, type=InstallAdapter) == InstallAdapter("a", pinned=True)
    assert frames.rest == b"a" * 10 + b"b" * 3 * PIECE + b"c"


def test_an_archive_whose_connection_was_dropped_is_not_repeated(tmp_path: Path):
    """It has been read from the client, who can repeat its PUT."""
    scripted = Scripted([Drop], INSTALLED)
    with pytest.raises(NotReady):
        ask(scripted, tmp_path, install(b"one"))
    assert len(scripted.requests) == 1


@pytest.mark.parametrize("waits", [False, True])
def test_an_archive_that_the_runner_refuses_is_sent_no_further(tmp_path: Path, waits: bool):
    """waits: whether the refusal arrives while the next piece is awaited from the client."""
    sent = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sent.append(PIECE)
            yield b"x" * PIECE
            await (asyncio.Event().wait() if waits else asyncio.sleep(0))

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = len(await reader.read(PIECE))
        while waits and received < PIECE:
            received += len(await reader.read(PIECE))
        body = encode(Reply.of(StorageFull("no room")))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        while await reader.read(PIECE):
            pass
        writer.close()

    async def scene():
        replica = HttpReplica((tmp_path / "socket").as_uri())
        async with await asyncio.start_unix_server(refuse, tmp_path / "socket"):
            with pytest.raises(StorageFull, match="no room"):
                await replica.apply(InstallAdapter("a"), endless())
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

FIRST = frame(StreamMessage.of([ADA], 0))
LAST = frame(StreamMessage.of(RESULT, 0))


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
    content = FIRST * 3 + frame(StreamMessage.of([], 0)) + LAST
    parts, error = streamed(Scripted(in_pieces(content, size)), tmp_path)
    assert error is None
    assert [list(part) for part in parts[:-1]] == [[ADA]] * 3 + [[]]
    assert replace(parts[-1], warnings=()) == RESULT


ENDINGS: dict[str, tuple[list[Step], type[GLiNERBentoError]]] = {
    "nothing": ([], InternalError),
    "half a message": ([FIRST, LAST[:-2]], InternalError),
    "the item's own error": ([FIRST, frame(StreamMessage.of(Aborted("stopped"), 0))], Aborted),
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
    monkeypatch.setattr(remote, "GRACE_S", 0.05)
    for number, timeout_s in enumerate((0.05, 0.5, 5.0, 25.0)):  # on a slow machine it passes before the first part
        folder = tmp_path / str(number)
        folder.mkdir()
        parts, error = streamed(Scripted([FIRST, HANG] if begun else [HANG]), folder, call(timeout_s=timeout_s))
        assert type(error) is DeadlineExceeded
        if len(parts) == begun:
            break
    assert [list(part) for part in parts] == [[ADA]] * begun


@pytest.mark.parametrize("script", [[FIRST, FIRST, HANG], [FIRST, FIRST, LAST, HANG]], ids=len)
def test_a_stream_that_is_not_read_to_its_end_closes_its_connection(script, tmp_path: Path):
    scripted = Scripted(script)

    async def scene(replica: HttpReplica) -> None:
        async with contextlib.aclosing(replica.stream(item(), call())) as parts:
            await parts.__anext__()
        await until(lambda: scripted.left > 0)

    ask(scripted, tmp_path, scene)
