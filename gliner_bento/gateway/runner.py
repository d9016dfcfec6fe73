"""The gateway's side of the hop to the runner: the contract, the deadline, and the retry that keep-alive races need."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import Any, Protocol, TypeVar

import aiohttp

from gliner_bento.errors import (
    DeadlineExceeded,
    ErrorDetail,
    GLiNERBentoError,
    InternalError,
    NotReady,
    from_detail,
)
from gliner_bento.types import PutAdapterRequest, RunnerItem, RunnerOutcome

logger = logging.getLogger("gliner_bento.gateway")
T = TypeVar("T")

_UNREACHABLE = "the model's process cannot be reached; try again"
_LATE = "the deadline passed before the model's process answered"
_CONTROL_S = 5.0
_GRACE_S = 0.5
"""What the runner gets beyond a deadline, so that it is the one to tell which item was late."""

_DROPPED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, ConnectionError)


class Runner(Protocol):
    """What the gateway needs of the runner service. Errors of single items and of adapters come back as data."""

    async def extract(
        self, items: list[RunnerItem], request_id: str, timeout_ms: float, priority: int
    ) -> list[RunnerOutcome]:
        """One outcome per item, in order."""

    def extract_stream(
        self, item: RunnerItem, request_id: str, stream_id: str, timeout_ms: float, priority: int
    ) -> AsyncGenerator[str, None]:
        """Pieces of lines: `{"entities": [...]}`, as often as there are some, and `{"outcome": ...}` at the end."""

    async def stop_stream(self, stream_id: str) -> None:
        """Nobody reads this stream any more."""

    async def abort(self, request_id: str) -> bool:
        """True if a waiting or running request had this id."""

    async def describe(self) -> dict[str, Any]:
        """The model's `ModelInfo`, as data."""

    async def adapters(self) -> RunnerOutcome:
        """Every adapter's `AdapterInfo`, as data."""

    async def adapter(self, adapter_id: str) -> RunnerOutcome:
        """One adapter's `AdapterInfo`, as data."""

    async def upload(self, upload_id: str, offset: int, data: bytes) -> RunnerOutcome:
        """Take a piece of an archive; the same piece twice does no harm."""

    async def put_adapter(
        self,
        adapter_id: str,
        upload_id: str | None,
        source: str | None,
        revision: str | None,
        pinned: bool | None,
        preload: bool,
    ) -> RunnerOutcome:
        """`{"adapter": its AdapterInfo as data, "created": bool}`."""

    async def delete_adapter(self, adapter_id: str, timeout_ms: float) -> RunnerOutcome:
        """None, once what runs with the adapter has ended and it is gone."""

    async def adapter_cache(self) -> RunnerOutcome:
        """The `CacheStatus`, as data."""


class Hop:
    """Calls the runner, for as long as there is time.

    A call whose connection was dropped is repeated once: a server may close an idle kept-alive connection at the moment
    a request is written to it. Extraction has no side effects, and an adapter that is put or deleted twice is there or
    gone as after once, so asking again is safe, whether or not the first one arrived.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._stopping: set[asyncio.Future[None]] = set()

    async def extract(
        self, items: list[RunnerItem], *, request_id: str, timeout_ms: float, priority: int
    ) -> list[RunnerOutcome]:
        """As `Runner.extract`; raises `DeadlineExceeded` if the runner itself does not."""
        deadline_s = time.monotonic() + timeout_ms / 1000

        def ask() -> Awaitable[list[RunnerOutcome]]:
            left_ms = max(0.0, deadline_s - time.monotonic()) * 1000
            return self._runner.extract(items=items, request_id=request_id, timeout_ms=left_ms, priority=priority)

        return await self._call(ask, timeout_ms / 1000 + _GRACE_S, DeadlineExceeded(_LATE))

    async def extract_stream(
        self, item: RunnerItem, *, request_id: str, timeout_ms: float, priority: int
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The lines of `Runner.extract_stream`, as data. The last one holds the outcome.

        The runner is told if they are not read to the end: BentoML's client leaves the connection open then.
        """
        last_s = time.monotonic() + timeout_ms / 1000 + _GRACE_S
        stream_id = uuid.uuid4().hex

        def ask() -> AsyncGenerator[str, None]:
            return self._runner.extract_stream(
                item=item, request_id=request_id, stream_id=stream_id, timeout_ms=timeout_ms, priority=priority
            )

        begun, ended = "", False
        try:
            pieces = ask()
            try:
                piece = await self._next(pieces, last_s)
            except NotReady:  # dropped before it began: a new one, under a name of its own
                stream_id = uuid.uuid4().hex
                pieces = ask()
                piece = await self._next(pieces, last_s)
            while piece is not None:
                *lines, begun = (begun + piece).split("\n")
                for line in lines:
                    part = json.loads(line)
                    ended = "outcome" in part
                    yield part
                piece = await self._next(pieces, last_s)
            if not ended:  # BentoML logs what goes wrong in a stream, and ends it like a good one
                raise InternalError()
        finally:
            if not ended:
                stopping = asyncio.ensure_future(self._stop(stream_id))
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)

    async def _next(self, pieces: AsyncGenerator[str, None], last_s: float) -> str | None:
        try:
            return await asyncio.wait_for(pieces.__anext__(), max(0.0, last_s - time.monotonic()))
        except StopAsyncIteration:
            return None
        except asyncio.TimeoutError:
            raise DeadlineExceeded(_LATE) from None
        except _DROPPED as dropped:
            raise NotReady(_UNREACHABLE) from dropped
        except Exception as fault:
            logger.exception("a stream from the runner failed")
            raise InternalError() from fault

    async def _stop(self, stream_id: str) -> None:
        with contextlib.suppress(GLiNERBentoError):  # who is to hear of it has gone
            await self._call(lambda: self._runner.stop_stream(stream_id=stream_id), _CONTROL_S, NotReady(_UNREACHABLE))

    async def abort(self, request_id: str) -> bool:
        """As `Runner.abort`."""
        return await self._call(lambda: self._runner.abort(request_id=request_id), _CONTROL_S, NotReady(_UNREACHABLE))

    async def describe(self) -> dict[str, Any]:
        """As `Runner.describe`."""
        return await self._call(self._runner.describe, _CONTROL_S, NotReady(_UNREACHABLE))

    async def adapters(self) -> list[dict[str, Any]]:
        """Every adapter's `AdapterInfo`, as data."""
        found: list[dict[str, Any]] = await self._control(self._runner.adapters)
        return found

    async def adapter(self, adapter_id: str) -> dict[str, Any]:
        """One adapter's `AdapterInfo`, as data; raises `AdapterNotFound`."""
        found: dict[str, Any] = await self._control(lambda: self._runner.adapter(adapter_id=adapter_id))
        return found

    async def upload(self, pieces: AsyncIterable[bytes]) -> str | None:
        """Send an archive, a piece at a time; the id that the runner has it under, None if there was no piece."""
        upload_id, offset = uuid.uuid4().hex, 0
        async for piece in pieces:
            sent = functools.partial(self._runner.upload, upload_id=upload_id, offset=offset, data=piece)
            await self._control(sent)
            offset += len(piece)
        return upload_id if offset else None

    async def put_adapter(
        self, adapter_id: str, asked: PutAdapterRequest, upload_id: str | None = None
    ) -> tuple[dict[str, Any], bool]:
        """The adapter's `AdapterInfo`, as data, and whether it is new; raises what is wrong with it. No deadline."""

        def ask() -> Awaitable[RunnerOutcome]:
            return self._runner.put_adapter(adapter_id=adapter_id, upload_id=upload_id, **asked.model_dump())

        put = _result(await self._call(ask, None, NotReady(_UNREACHABLE)))
        return put["adapter"], put["created"]

    async def delete_adapter(self, adapter_id: str, timeout_ms: float) -> None:
        """Wait until nothing runs with the adapter, and until it is gone; raises `AdapterNotFound`."""

        def ask() -> Awaitable[RunnerOutcome]:
            return self._runner.delete_adapter(adapter_id=adapter_id, timeout_ms=timeout_ms)

        late = DeadlineExceeded("the deadline passed before the adapter was gone")
        _result(await self._call(ask, timeout_ms / 1000 + _GRACE_S, late))

    async def adapter_cache(self) -> dict[str, Any]:
        """The `CacheStatus`, as data."""
        status: dict[str, Any] = await self._control(self._runner.adapter_cache)
        return status

    async def _control(self, ask: Callable[[], Awaitable[RunnerOutcome]]) -> Any:
        return _result(await self._call(ask, _CONTROL_S, NotReady(_UNREACHABLE)))

    async def _call(self, ask: Callable[[], Awaitable[T]], timeout_s: float | None, late: GLiNERBentoError) -> T:
        try:
            return await asyncio.wait_for(_insist(ask), timeout_s)
        except GLiNERBentoError:
            raise
        except asyncio.TimeoutError:
            raise late from None
        except _DROPPED as dropped:
            raise NotReady(_UNREACHABLE) from dropped
        except Exception as fault:
            logger.exception("a call to the runner failed")
            raise InternalError() from fault


def _result(outcome: RunnerOutcome) -> Any:
    if "error" in outcome:
        raise from_detail(ErrorDetail.model_validate(outcome["error"]))
    return outcome["result"]


async def _insist(ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except _DROPPED as dropped:
        logger.warning("the runner's connection was dropped (%r); asking once more", dropped)
        return await ask()
