"""The gateway's side of the transport: a `Replica` in another process, with deadlines. Its caller repeats calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import aiohttp

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.errors import DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.replicas.base import Archive, Call, Outcome, Part, ReplicaStatus
from gliner_bento.replicas.messages import (
    Frames,
    ItemsMessage,
    OutcomesMessage,
    Reply,
    StreamMessage,
    decoder,
    encode,
    frame,
)
from gliner_bento.tasks.base import Item, Result

logger = logging.getLogger(__name__)
T = TypeVar("T")

_UNREACHABLE = "the model's process cannot be reached; try again"
_ANSWERED = "the model's process answered"
_CONTROL_S = 5.0
_GRACE_S = 0.5
"""How long a call may run past its deadline, so that the runner can report which items were late."""

_DROPPED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, ConnectionError)


class HttpReplica:
    """A `Replica` behind a `ReplicaApp`.

    url: of the server, http://, or file:// for a Unix socket. path: where the app is mounted.

    A dropped connection is `NotReady`: a server may also close an idle keep-alive connection at the moment a request is
    written to it. Extraction has no side effects, so the caller may repeat it.
    """

    def __init__(self, url: str, path: str = "") -> None:
        self._connection = Connection(url, path)
        self.adapters = HttpAdapters(self._connection)
        self.tokens_run = 0

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`."""
        late = DeadlineExceeded.before(_ANSWERED)
        outcomes: Sequence[Outcome]
        outcomes, self.tokens_run = await self._connection.call(
            "extract", ItemsMessage.of(items, call), OutcomesMessage.read, _timeout_s(call), late
        )
        return outcomes

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[Part, None]:
        """See `Replica`. A stream that is not read to its end is aborted, because its connection closes."""
        message = ItemsMessage.of([item], call)
        with transport_errors(DeadlineExceeded.before(_ANSWERED)):
            async with self._connection.stream("stream", message, partial(_timeout_s, call)) as pieces:
                frames = Frames()
                async for piece in pieces:
                    for part, self.tokens_run in map(StreamMessage.read, frames.add(piece)):
                        if isinstance(part, GLiNERBentoError):
                            raise part
                        yield part
                        if isinstance(part, Result):
                            return
        raise InternalError()

    async def abort(self, request_id: str) -> bool:
        """See `Replica`."""
        return await self._connection.control(bool, "abort", {"request_id": request_id})

    async def status(self) -> ReplicaStatus:
        """See `Replica`."""
        return await self._connection.control(ReplicaStatus, "status", {})

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()


class HttpAdapters:
    """The `ReplicaAdapters` of a `HttpReplica`."""

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
        arguments = encode({"adapter_id": adapter_id, **options})
        reply: Reply[tuple[AdapterInfo, bool]] = await self._connection.send(
            "install_adapter", frame(arguments), archive, _reply_decoder(cast(Any, tuple[AdapterInfo, bool])).decode
        )
        return reply.unwrap()

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


class Connection:
    """Calls of a `ReplicaApp`: the timeout, and errors of the tree in place of the transport's.

    Any number of calls runs concurrently: admission is the scheduler's, and a call that waited here for a connection
    would be waiting unseen.
    """

    def __init__(self, url: str, path: str) -> None:
        parts = urlsplit(url)
        self._socket = unquote(parts.path) if parts.scheme == "file" else None
        self._url = ("http://localhost" if self._socket else f"http://{parts.netloc}") + path
        self._open_session: aiohttp.ClientSession | None = None

    async def control(
        self,
        kind: type[T],
        method: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float | None = _CONTROL_S,
        late: GLiNERBentoError | None = None,
    ) -> T:
        """Call `method`; returns its result, a `kind`. late: raised after `timeout_s`."""
        decode = _reply_decoder(cast(Any, kind)).decode
        late = late or NotReady(_UNREACHABLE)
        reply: Reply[T] = await self.call(f"call/{method}", encode(arguments), decode, timeout_s, late)
        return reply.unwrap()

    async def call(
        self,
        path: str,
        message: bytes,
        decode: Callable[[bytes], Any],
        timeout_s: float | None,
        late: GLiNERBentoError,
    ) -> Any:
        """The decoded answer to `message`."""

        async def send() -> bytes:
            async with await self._post(path, message) as response:
                return await response.read()

        with transport_errors(late):
            return decode(await asyncio.wait_for(send(), timeout_s))

    @asynccontextmanager
    async def stream(
        self, path: str, message: bytes, timeout_s: Callable[[], float]
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """The pieces of the answer to `message`, each within `timeout_s()`. Closes the connection on exit."""
        response = await asyncio.wait_for(self._post(path, message), timeout_s())

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.wait_for(response.content.readany(), timeout_s()):
                yield piece

        try:
            yield pieces()
        finally:
            response.close()

    async def send(
        self, path: str, begin: bytes, rest: AsyncIterable[bytes] | None, decode: Callable[[bytes], Any]
    ) -> Any:
        """The decoded answer to a body of `begin` and `rest`. Raises what `rest` raises."""
        failures: list[BaseException] = []

        async def body() -> AsyncIterator[bytes]:
            yield begin
            if rest is None:
                return
            try:
                async for piece in rest:
                    yield piece
            except BaseException as failure:
                failures.append(failure)
                raise

        with transport_errors(NotReady(_UNREACHABLE)):
            try:
                response = await self._post(path, body())
                try:
                    return decode(await response.read())
                finally:
                    response.close()  # the server may answer before it has read the whole body
            except aiohttp.ClientError:
                if not failures:
                    raise
        raise failures[0]

    async def close(self) -> None:
        """Close the connections."""
        if self._open_session:
            await self._open_session.close()

    async def _post(self, path: str, body: Any) -> aiohttp.ClientResponse:
        return await self._session.post(f"{self._url}/{path}", data=body, raise_for_status=True)

    @property
    def _session(self) -> aiohttp.ClientSession:
        """Made by the first call, because it belongs to a running event loop."""
        if self._open_session is None:
            unlimited = 0  # aiohttp's default is 100 connections
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(self._socket, limit=unlimited)
                if self._socket
                else aiohttp.TCPConnector(limit=unlimited)
            )
            no_timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONTROL_S)
            self._open_session = aiohttp.ClientSession(connector=connector, timeout=no_timeout)
        return self._open_session


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


def _timeout_s(call: Call) -> float:
    return call.wait_s(time.monotonic()) + _GRACE_S


@cache
def _reply_decoder(kind: Any) -> Any:
    return decoder(Reply[kind])
