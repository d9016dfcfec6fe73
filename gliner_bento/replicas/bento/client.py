"""The gateway's side of the transport: a `Replica` in another BentoML service, with deadlines and one retry."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import aiohttp
import msgspec

from gliner_bento.errors import DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.replicas.base import Archive, Call, Outcome, ReplicaStatus
from gliner_bento.replicas.bento.messages import (
    ExtractMessage,
    Frames,
    Reply,
    StreamMessage,
    StreamPart,
    decoder,
    encode,
)
from gliner_bento.replicas.uploads import in_pieces
from gliner_bento.types import AdapterCacheStatus, AdapterInfo, Entity, Extraction, Item

logger = logging.getLogger(__name__)
T = TypeVar("T")

_UNREACHABLE = "the model's process cannot be reached; try again"
_LATE = "the deadline passed before the model's process answered"
_CONTROL_S = 5.0
_GRACE_S = 0.5
"""How long a call may run past its deadline, so that the runner can report which items were late."""

_DROPPED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, ConnectionError)

_replies = decoder(list[Reply[Extraction]])
_stream_part = decoder(StreamPart)


class Runner(Protocol):
    """BentoML's client of the service that hosts a `ReplicaServer`."""

    async def extract(self, message: bytes) -> bytes:
        """See `ReplicaServer`."""

    def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """See `ReplicaServer`."""

    async def control(self, method: str, arguments: bytes) -> bytes:
        """See `ReplicaServer`."""


class BentoReplica:
    """A `Replica` behind a `ReplicaServer`.

    A call whose connection was dropped is repeated once: a server may close an idle keep-alive connection at the moment
    a request is written to it. Extraction has no side effects, and installing or removing an adapter is idempotent, so
    repeating is safe whether or not the first call arrived.
    """

    def __init__(self, runner: Runner) -> None:
        self._connection = Connection(runner)
        self._runner = runner
        self._stopping: set[asyncio.Future[None]] = set()
        self.adapters = BentoAdapters(self._connection)

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`."""
        items = list(items)

        def send() -> Awaitable[bytes]:
            return self._runner.extract(
                message=encode(ExtractMessage(items, call.request_id, _left_ms(call), call.priority))
            )

        timeout_s = _left_ms(call) / 1000 + _GRACE_S
        replies: list[Reply[Extraction]] = await self._connection.call(
            send, _replies, timeout_s, DeadlineExceeded(_LATE)
        )
        return [reply.outcome() for reply in replies]

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[Sequence[Entity] | Extraction, None]:
        """See `Replica`. A stream that is not read to its end is stopped by a call: BentoML keeps its connection."""
        stream_id, frames, ended = uuid.uuid4().hex, Frames(), False
        try:
            pieces = self._open(item, call, stream_id)
            try:
                parts = await self._next(pieces, frames, call)
            except NotReady:  # dropped before it began
                stream_id = uuid.uuid4().hex
                pieces = self._open(item, call, stream_id)
                parts = await self._next(pieces, frames, call)
            while parts is not None:
                for part in parts:
                    if part.last:
                        ended = True
                        yield part.last.unwrap()
                    else:
                        yield part.entities
                parts = await self._next(pieces, frames, call)
            if not ended:  # BentoML logs an exception in a stream, and ends the stream as if it were complete
                raise InternalError()
        finally:
            if not ended:
                stopping = asyncio.ensure_future(self._stop(stream_id))
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)

    async def abort(self, request_id: str) -> bool:
        """See `Replica`."""
        return await self._connection.control(bool, "abort", {"request_id": request_id})

    async def status(self) -> ReplicaStatus:
        """See `Replica`."""
        return await self._connection.control(ReplicaStatus, "status", {})

    def _open(self, item: Item, call: Call, stream_id: str) -> AsyncGenerator[bytes, None]:
        message = StreamMessage(item, stream_id, call.request_id, _left_ms(call), call.priority)
        return self._runner.stream(message=encode(message))

    @staticmethod
    async def _next(pieces: AsyncGenerator[bytes, None], frames: Frames, call: Call) -> list[StreamPart] | None:
        """The parts that are complete with the next piece; None after the last piece."""
        with transport_errors(DeadlineExceeded(_LATE)):
            try:
                piece = await asyncio.wait_for(pieces.__anext__(), _left_ms(call) / 1000 + _GRACE_S)
            except StopAsyncIteration:
                return None
            return [_stream_part.decode(message) for message in frames.add(piece)]

    async def _stop(self, stream_id: str) -> None:
        with suppress(GLiNERBentoError):  # its reader is gone
            await self._connection.control(type(None), "stop_stream", {"stream_id": stream_id})


class BentoAdapters:
    """The `ReplicaAdapters` of a `BentoReplica`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> Sequence[AdapterInfo]:
        """See `ReplicaAdapters`."""
        return await self._connection.control(list[AdapterInfo], "adapters", {})

    async def get(self, adapter_id: str) -> AdapterInfo:
        """See `ReplicaAdapters`."""
        return await self._connection.control(AdapterInfo, "adapter", {"adapter_id": adapter_id})

    async def install(
        self, adapter_id: str, *, archive: Archive | None = None, **options: Any
    ) -> tuple[AdapterInfo, bool]:
        """See `ReplicaAdapters`. Has no timeout: the caller sets one."""
        if isinstance(archive, Path):
            raise ValueError("a path means a file on the replica's disk; send bytes")
        upload_id = None if archive is None else await self._upload(archive)
        arguments = {"adapter_id": adapter_id, "upload_id": upload_id, "options": options}
        return await self._connection.control(tuple[AdapterInfo, bool], "install_adapter", arguments, timeout_s=None)

    async def remove(self, adapter_id: str, timeout_s: float) -> None:
        """See `ReplicaAdapters`."""
        await self._connection.control(
            type(None),
            "remove_adapter",
            {"adapter_id": adapter_id, "timeout_s": timeout_s},
            timeout_s=timeout_s + _GRACE_S,
            late=DeadlineExceeded("the deadline passed before the adapter was removed"),
        )

    async def cache_status(self) -> AdapterCacheStatus:
        """See `ReplicaAdapters`."""
        return await self._connection.control(AdapterCacheStatus, "adapter_cache", {})

    async def _upload(self, archive: AsyncIterable[bytes]) -> str | None:
        """Send an archive in pieces, each an idempotent call; returns the upload id, None for an empty archive."""
        upload_id, offset = uuid.uuid4().hex, 0
        try:
            async for piece in in_pieces(archive):
                arguments = {"upload_id": upload_id, "offset": offset, "data": piece}
                await self._connection.control(type(None), "upload", arguments)
                offset += len(piece)
        except BaseException:
            if offset:
                with suppress(GLiNERBentoError):
                    await self._connection.control(type(None), "discard_upload", {"upload_id": upload_id})
            raise
        return upload_id if offset else None


class Connection:
    """Calls of a runner: the retry, the timeout, and errors of the tree in place of the transport's."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def control(
        self,
        kind: type[T],
        method: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float | None = _CONTROL_S,
        late: GLiNERBentoError | None = None,
    ) -> T:
        """Call `method` of a `ReplicaServer`; returns its result, a `kind`. late: raised after `timeout_s`."""
        message = encode(arguments)
        reply: Reply[T] = await self.call(
            lambda: self._runner.control(method=method, arguments=message),
            _reply_decoder(cast(Any, kind)),
            timeout_s,
            late or NotReady(_UNREACHABLE),
        )
        return reply.unwrap()

    async def call(
        self,
        send: Callable[[], Awaitable[bytes]],
        decoder: msgspec.msgpack.Decoder[Any],
        timeout_s: float | None,
        late: GLiNERBentoError,
    ) -> Any:
        """The decoded answer to `send()`, which is repeated once if its connection was dropped."""
        with transport_errors(late):
            return decoder.decode(await asyncio.wait_for(_repeated(send), timeout_s))


@contextmanager
def transport_errors(late: GLiNERBentoError) -> Iterator[None]:
    """Raise `late` for a timeout, `NotReady` for a lost connection, and `InternalError` for any other error."""
    try:
        yield
    except GLiNERBentoError:
        raise
    except asyncio.TimeoutError:
        raise late from None
    except _DROPPED as dropped:
        raise NotReady(_UNREACHABLE) from dropped
    except Exception as fault:
        logger.exception("a call to the runner failed")
        raise InternalError() from fault


async def _repeated(send: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return await send()
    except _DROPPED as dropped:
        logger.warning("the connection to the runner was dropped (%r); repeating the call", dropped)
        return await send()


@cache
def _reply_decoder(kind: Any) -> Any:
    return decoder(Reply[kind])


def _left_ms(call: Call) -> float:
    return max(0.0, call.deadline_s - time.monotonic()) * 1000
