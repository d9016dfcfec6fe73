"""The transport between gateway and runner: framing, one retry, deadlines, and no foreign exception beyond it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest
from memory_adapters import MemoryManager
from memory_replica import MemoryReplica
from serving import call, cut, item, run

from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    NotReady,
    StorageFull,
)
from gliner_bento.replicas.base import Call
from gliner_bento.replicas.bento import client
from gliner_bento.replicas.bento.client import BentoReplica
from gliner_bento.replicas.bento.messages import (
    ExtractMessage,
    Frames,
    Reply,
    StreamMessage,
    StreamPart,
    encode,
    frame,
)
from gliner_bento.replicas.bento.server import ReplicaServer
from gliner_bento.replicas.uploads import Uploads
from gliner_bento.types import Entity, Extraction, Item, Relation, RelationArgument, Usage

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
    )
    assert all(getattr(sent, field) != getattr(item(), field) for field in Item.__dataclass_fields__)
    arrived = msgspec.msgpack.decode(encode(ExtractMessage([sent], "r", 1.0, 0)), type=ExtractMessage).items[0]
    assert arrived == sent
    assert list(arrived.labels) == ["b", "a"]


# Calls


class FlakyRunner:
    """Fails `failures` times with `error`, then answers `result` to every call."""

    def __init__(self, error: Exception, failures: int, result: Any = True) -> None:
        self.error = error
        self.failures = failures
        self.calls = 0
        self._answer = encode(Reply(result=result))

    async def control(self, method: str, arguments: bytes) -> bytes:
        return self._called(self._answer)

    async def extract(self, message: bytes) -> bytes:
        return self._called(encode([Reply(result=RESULT)]))

    def _called(self, answer: bytes) -> bytes:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return answer


DROPPED = [
    aiohttp.ServerDisconnectedError(),
    aiohttp.ClientOSError(),
    aiohttp.ClientPayloadError(),
    ConnectionResetError(),
    BrokenPipeError(),
]


@pytest.mark.parametrize("dropped", DROPPED, ids=repr)
def test_a_call_whose_connection_was_dropped_is_repeated_once(dropped: Exception):
    runner = FlakyRunner(dropped, failures=1)
    assert run(lambda: BentoReplica(runner).abort("r")) is True
    assert runner.calls == 2
    runner = FlakyRunner(dropped, failures=1)
    (outcome,) = run(lambda: BentoReplica(runner).extract([item()], call()))
    assert isinstance(outcome, Extraction)
    assert runner.calls == 2


@pytest.mark.parametrize("ask", [lambda one: one.abort("r"), lambda one: one.extract([item()], call())])
def test_a_runner_that_cannot_be_reached_is_not_ready(ask):
    runner = FlakyRunner(ConnectionResetError(), failures=5)
    with pytest.raises(NotReady):
        run(lambda: ask(BentoReplica(runner)))
    assert runner.calls == 2


@pytest.mark.parametrize("ask", [lambda one: one.abort("r"), lambda one: one.extract([item()], call())])
def test_any_other_fault_is_an_internal_error_and_is_not_repeated(ask, caplog: pytest.LogCaptureFixture):
    runner = FlakyRunner(ValueError("a secret"), failures=1)
    with pytest.raises(InternalError) as caught:
        run(lambda: ask(BentoReplica(runner)))
    assert runner.calls == 1
    assert "a secret" not in caught.value.message
    assert "a secret" in caplog.text


@pytest.mark.parametrize("ask", [lambda one: one.status(), lambda one: one.extract([item()], call())])
def test_an_answer_that_cannot_be_decoded_is_an_internal_error(ask):
    class Babbling:
        async def control(self, method: str, arguments: bytes) -> bytes:
            return b"\xc1"

        async def extract(self, message: bytes) -> bytes:
            return b"\xc1"

    with pytest.raises(InternalError):
        run(lambda: ask(BentoReplica(Babbling())))


class StuckRunner:
    """Answers nothing, ever. cancelled: calls that were."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def wait(self, **_: Any) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError

    extract = control = wait


def test_a_stuck_runner_costs_a_request_its_deadline_and_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.01)
    runner = StuckRunner()
    with pytest.raises(DeadlineExceeded):
        run(lambda: BentoReplica(runner).extract([item()], call(timeout_s=0.01)))
    assert runner.cancelled == 1, "the runner must see that its caller is gone"


def test_a_stuck_runner_is_not_ready(monkeypatch: pytest.MonkeyPatch):
    replica = BentoReplica(StuckRunner())
    monkeypatch.setattr(client.Connection.control, "__kwdefaults__", {"timeout_s": 0.01, "late": None})
    with pytest.raises(NotReady):
        run(replica.status)


def test_a_stuck_removal_ends_by_its_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.01)
    with pytest.raises(DeadlineExceeded):
        run(lambda: BentoReplica(StuckRunner()).adapters.remove("a", 0.01))


def test_a_repeated_call_does_not_get_its_time_again():
    class DroppingRunner:
        def __init__(self) -> None:
            self.timeouts_ms: list[float] = []

        async def extract(self, message: bytes) -> bytes:
            self.timeouts_ms.append(msgspec.msgpack.decode(message, type=ExtractMessage).timeout_ms)
            if len(self.timeouts_ms) == 1:
                await asyncio.sleep(0.02)
                raise ConnectionResetError
            return encode([])

    runner = DroppingRunner()
    run(lambda: BentoReplica(runner).extract([], call(timeout_s=1)))
    first, second = runner.timeouts_ms
    assert second < first - 10
    assert 0 < first <= 1000


def test_the_runner_gets_what_is_left_until_the_deadline():
    memory = MemoryReplica()
    server = ReplicaServer(memory, Uploads(Path("unused")))
    request = ExtractMessage([item()], "mine", 5000.0, -3)
    before_s = time.monotonic()
    run(lambda: server.extract(encode(request)))
    ((items, received),) = memory.calls
    assert (list(items), received.request_id, received.priority) == ([item()], "mine", -3)
    assert before_s + 5 <= received.deadline_s <= time.monotonic() + 5


# Uploads


async def archive(*pieces: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if error:
        raise error


class UploadRunner:
    """Takes uploads. fail: what a call raises or replies, by its number."""

    def __init__(self, **fail: Any) -> None:
        self.content = bytearray()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fail = {int(number.removeprefix("call_")): failure for number, failure in fail.items()}

    async def control(self, method: str, arguments: bytes) -> bytes:
        decoded = msgspec.msgpack.decode(arguments)
        self.calls.append((method, decoded))
        if method == "upload":
            self.content[decoded["offset"] : decoded["offset"] + len(decoded["data"])] = decoded["data"]
        failure = self.fail.get(len(self.calls))
        if isinstance(failure, GLiNERBentoError):
            return encode(Reply.of(failure))
        if failure:
            raise failure
        if method == "install_adapter":
            return encode(Reply(result=MemoryManager().change("a", b"one")))
        return encode(Reply())

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.calls]


PIECE = 2**20


def test_an_archive_is_sent_in_pieces_of_one_size_whatever_arrives():
    runner = UploadRunner()
    run(lambda: BentoReplica(runner).adapters.install("a", archive=archive(b"a" * 10, b"b" * 3 * PIECE, b"c")))
    assert runner.methods == ["upload"] * 4 + ["install_adapter"]
    sizes = [len(arguments["data"]) for method, arguments in runner.calls if method == "upload"]
    assert sizes == [PIECE, PIECE, PIECE, 11]
    assert bytes(runner.content) == b"a" * 10 + b"b" * 3 * PIECE + b"c"
    assert len({arguments["upload_id"] for _, arguments in runner.calls}) == 1


def test_an_empty_archive_is_not_sent():
    runner = UploadRunner()
    run(lambda: BentoReplica(runner).adapters.install("a", archive=archive(b"")))
    assert runner.methods == ["install_adapter"]
    assert runner.calls[0][1]["upload_id"] is None


def test_a_piece_whose_answer_was_lost_is_sent_again_in_its_place():
    runner = UploadRunner(call_2=ConnectionResetError())
    content = b"abc" * PIECE
    run(lambda: BentoReplica(runner).adapters.install("a", archive=archive(content)))
    assert runner.methods == ["upload"] * 4 + ["install_adapter"]
    assert bytes(runner.content) == content


def test_an_archive_that_the_runner_refuses_is_sent_no_further():
    runner = UploadRunner(call_1=StorageFull("no room"))
    with pytest.raises(StorageFull, match="no room"):
        run(lambda: BentoReplica(runner).adapters.install("a", archive=archive(b"x" * 3 * PIECE)))
    assert runner.methods.count("upload") == 1
    assert "install_adapter" not in runner.methods


def test_a_broken_off_archive_is_discarded():
    runner = UploadRunner()
    with pytest.raises(OSError, match="the connection"):
        run(
            lambda: BentoReplica(runner).adapters.install(
                "a", archive=archive(b"x" * 2 * PIECE, error=OSError("the connection"))
            )
        )
    assert runner.methods == ["upload", "upload", "discard_upload"]


def test_an_archive_that_was_never_sent_need_not_be_discarded():
    runner = UploadRunner()
    with pytest.raises(OSError, match="the connection"):
        run(lambda: BentoReplica(runner).adapters.install("a", archive=archive(b"x", error=OSError("the connection"))))
    assert runner.methods == []


def test_a_discarding_that_fails_hides_no_error():
    runner = UploadRunner(call_2=ConnectionResetError(), call_3=ConnectionResetError())
    with pytest.raises(OSError, match="the disk"):
        run(
            lambda: BentoReplica(runner).adapters.install("a", archive=archive(b"x" * PIECE, error=OSError("the disk")))
        )
    assert runner.methods == ["upload", "discard_upload", "discard_upload"]


def test_an_upload_is_used_once(tmp_path: Path):
    manager = MemoryManager()
    server = ReplicaServer(MemoryReplica(manager=manager), Uploads(tmp_path))

    async def control(method: str, **arguments: Any) -> Reply[Any]:
        return msgspec.msgpack.decode(await server.control(method, encode(arguments)), type=Reply[Any])

    async def scene():
        for offset, data in [(0, b"abc"), (3, b"def"), (3, b"def")]:
            assert (await control("upload", upload_id="u", offset=offset, data=data)).error is None
        await control("discard_upload", upload_id="u")
        return await control("install_adapter", adapter_id="a", upload_id="u", options={})

    assert run(scene).error.code == "not_ready"
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_gateway_is_no_archive():
    with pytest.raises(ValueError, match="send bytes"):
        run(lambda: BentoReplica(UploadRunner()).adapters.install("a", archive=Path("a.zip")))


# Streams


class ScriptedRunner:
    """A stream of `script`: pieces as they are; an exception is raised, an event is waited for."""

    def __init__(self, *script: bytes | Exception | asyncio.Event) -> None:
        self.script = script
        self.timeouts_ms: list[float] = []
        self.streams: list[str] = []
        self.stopped: list[str] = []
        self.ended = False

    async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        request = msgspec.msgpack.decode(message, type=StreamMessage)
        self.timeouts_ms.append(request.timeout_ms)
        self.streams.append(request.stream_id)
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

    async def control(self, method: str, arguments: bytes) -> bytes:
        assert method == "stop_stream"
        self.stopped.append(msgspec.msgpack.decode(arguments)["stream_id"])
        return encode(Reply())


def ended(runner: Any, request: Call | None = None) -> tuple[list[Any], Exception | None]:
    """The parts of a stream, and how it ended."""

    async def scene():
        parts: list[Any] = []
        try:
            async for part in BentoReplica(runner).stream(item(), request or call()):
                parts.append(part)
        except Exception as error:
            return parts, error
        return parts, None

    return run(scene)


@pytest.mark.parametrize("size", [1, 2, 17, 10_000])
def test_a_stream_may_be_cut_anywhere(size: int):
    content = FIRST * 3 + frame(encode(StreamPart([]))) + LAST
    parts, error = ended(ScriptedRunner(*in_pieces(content, size)))
    assert error is None
    assert [list(part) for part in parts[:-1]] == [[ADA]] * 3 + [[]]
    assert parts[-1] == RESULT


def test_a_stream_that_was_dropped_before_it_began_is_repeated_under_another_id():
    class DroppedOnce(ScriptedRunner):
        async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
            if not self.streams:
                self.streams.append(msgspec.msgpack.decode(message, type=StreamMessage).stream_id)
                raise aiohttp.ServerDisconnectedError
            async for piece in super().stream(message):
                yield piece

    runner = DroppedOnce(FIRST, LAST)
    parts, error = ended(runner)
    assert (len(parts), error) == (2, None)
    assert len(set(runner.streams)) == 2
    assert not runner.stopped


def test_a_stream_that_is_dropped_twice_is_not_ready():
    runner = ScriptedRunner(ConnectionResetError())
    parts, error = ended(runner)
    assert (parts, type(error), len(runner.streams)) == ([], NotReady, 2)


def test_streams_of_one_request_have_ids_of_their_own():
    runner = ScriptedRunner(FIRST, LAST)
    for _ in range(2):
        ended(runner, call("same"))
    assert len(set(runner.streams)) == 2


ENDINGS = {
    "nothing": ([], InternalError),
    "half a message": ([FIRST, LAST[:-2]], InternalError),
    "the item's own error": ([FIRST, frame(encode(StreamPart(last=Reply.of(Aborted("stopped")))))], Aborted),
    "a reset connection": ([FIRST, ConnectionResetError()], NotReady),
    "a disconnected server": ([FIRST, aiohttp.ServerDisconnectedError()], NotReady),
    "a broken payload": ([FIRST, aiohttp.ClientPayloadError()], NotReady),
    "a timeout": ([FIRST, asyncio.TimeoutError()], DeadlineExceeded),
    "a fault": ([FIRST, ValueError("a secret")], InternalError),
    "what cannot be decoded": ([FIRST, frame(b"\xc1")], InternalError),
}


@pytest.mark.parametrize(("script", "kind"), ENDINGS.values(), ids=ENDINGS.keys())
def test_a_stream_without_a_result_ends_with_an_error(script, kind: type[GLiNERBentoError]):
    parts, error = ended(ScriptedRunner(*script))
    assert [list(part) for part in parts] == [[ADA]] * (FIRST in script)
    assert type(error) is kind
    assert "secret" not in str(error)


def test_a_runner_that_hangs_costs_a_stream_its_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.01)
    never_began = ScriptedRunner(asyncio.Event())
    assert [type(one) for one in ended(never_began, call(timeout_s=0.01))] == [list, DeadlineExceeded]
    stopped = ScriptedRunner(FIRST, asyncio.Event())
    clock_s = iter([0.0, 0.0, 1e9])  # at the message, before the first piece, before the second
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: next(clock_s)))
    parts, error = ended(stopped, Call("r", 60.0))
    assert [list(part) for part in parts] == [[ADA]]
    assert type(error) is DeadlineExceeded
    assert never_began.ended
    assert stopped.ended, "the runner must see that its caller is gone"


def test_the_runner_of_a_stream_gets_what_is_left_until_the_deadline():
    runner = ScriptedRunner(FIRST, LAST)
    ended(runner, call(timeout_s=0.5))
    assert 0 < runner.timeouts_ms[0] <= 500


@pytest.mark.parametrize(
    ("script", "most", "stops"),
    [
        ([FIRST, FIRST, LAST], 1, True),
        ([FIRST, FIRST, LAST], 3, False),
        ([FIRST, LAST], None, False),
        ([FIRST], None, True),
        ([FIRST, ConnectionResetError()], None, True),
    ],
    ids=str,
)
def test_a_stream_that_is_not_read_to_its_end_is_stopped_by_name(script, most: int | None, stops: bool):
    """Its connection may stay open: BentoML's client does not close it."""
    runner = ScriptedRunner(*script)

    async def scene():
        parts = BentoReplica(runner).stream(item(), call())
        with contextlib.suppress(GLiNERBentoError):
            async with contextlib.aclosing(parts):
                count = 0
                async for _ in parts:
                    count += 1
                    if count == most:
                        break
        for _ in range(10):
            await asyncio.sleep(0)

    run(scene)
    assert runner.stopped == runner.streams * stops


def test_a_stream_that_cannot_be_stopped_does_no_harm(caplog: pytest.LogCaptureFixture):
    class Unreachable(ScriptedRunner):
        async def control(self, method: str, arguments: bytes) -> bytes:
            raise ConnectionResetError

    parts, error = ended(Unreachable(FIRST, ConnectionResetError()))
    assert (len(parts), type(error)) == (1, NotReady)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


LONG = " ".join(f"Name{number}" for number in range(400))


async def parts_in(stream: AsyncGenerator[bytes, None]) -> list[StreamPart]:
    frames = Frames()
    return [msgspec.msgpack.decode(message, type=StreamPart) async for piece in stream for message in frames.add(piece)]


def test_stopping_a_stream_ends_it_and_no_other(tmp_path: Path):
    """Whoever reads it has gone, though the connection is still open."""
    memory = MemoryReplica(pass_words=2)
    server = ReplicaServer(memory, Uploads(tmp_path))

    async def stop(stream_id: str) -> None:
        await server.control("stop_stream", encode({"stream_id": stream_id}))

    async def scene():
        one, other = (
            server.stream(encode(StreamMessage(item(LONG), name, "r", 60_000.0, 0))) for name in ("one", "other")
        )
        await one.__anext__()
        await other.__anext__()
        await stop("unknown")
        assert len(memory._unfinished) == 2
        await stop("one")
        assert len(memory._unfinished) == 1
        assert await parts_in(one) == []
        await stop("one")
        rest = await parts_in(other)
        assert rest[-1].last.result.usage.words == 400
        assert memory._unfinished == []
        await stop("other")

    run(scene)


def test_stopping_a_stream_that_waits_for_its_next_part_ends_it(tmp_path: Path):
    memory = MemoryReplica(pass_words=2, step=lambda: False)
    server = ReplicaServer(memory, Uploads(tmp_path))

    async def scene():
        task = asyncio.ensure_future(
            parts_in(server.stream(encode(StreamMessage(item(LONG), "one", "r", 60_000.0, 0))))
        )
        while not memory._running:
            await asyncio.sleep(0.001)
        await server.control("stop_stream", encode({"stream_id": "one"}))
        assert memory._unfinished == []
        return await task

    assert run(scene) == []


def test_a_stream_whose_connection_closes_is_aborted(tmp_path: Path):
    memory = MemoryReplica(pass_words=2, step=lambda: False)
    server = ReplicaServer(memory, Uploads(tmp_path))

    async def scene():
        task = asyncio.ensure_future(
            parts_in(server.stream(encode(StreamMessage(item(LONG), "one", "r", 60_000.0, 0))))
        )
        while not memory._running:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert memory._unfinished == []

    run(scene)


@pytest.mark.parametrize(
    ("method", "kind"),
    [("extract", "application/msgpack"), ("control", "application/msgpack"), ("stream", "text/event-stream")],
)
def test_bentoml_derives_no_content_type_from_a_schema_for_each_answer(method: str, kind: str):
    """Of a stream it has one of its own, and passes bytes on as they are."""
    from runners.gliner_runner import GLiNERRunner

    assert GLiNERRunner.apis[method].output_spec.media_type == kind


def test_pieces_in_these_tests_are_whole():
    assert b"".join(cut(FIRST)) == FIRST
