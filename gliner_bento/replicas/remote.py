"""A replica in another process: `RemoteReplica` calls it, `ReplicaServer` answers, a `Connection` carries the messages.

A transport (`http/`, `ray/`) implements only `Connection`. A `RemoteReplica` repeats no calls; the fleet does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import cache, partial
from typing import Any, TypeVar, cast

import msgspec

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.errors import DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.model_types import AddModelRequest, ModelAction, ModelRow
from gliner_bento.replicas.base import Archive, Call, Outcome, Replica, ReplicaStatus, StreamStep
from gliner_bento.replicas.ended import within
from gliner_bento.replicas.messages import (
    Frames,
    ItemsMessage,
    OutcomesMessage,
    Reply,
    StreamMessage,
    call_adapters,
    calls_of,
    decoder,
    encode,
    frame,
    reply_to,
    stream_messages,
)
from gliner_bento.tasks.base import Item, Result

logger = logging.getLogger(__name__)
T = TypeVar("T")

CONTROL_TIMEOUT_S = 5.0
"""Maximum time of a call that does not run the model."""
GRACE_S = 0.5
"""How long a call may run past its deadline, so that the replica can report which items were late."""

_UNREACHABLE = "the model's process cannot be reached; try again"
_ANSWERED = "the model's process answered"


class Connection(ABC):
    """A connection to one `ReplicaServer`. `call`, `stream` and `install` raise the transport's own errors; closing or
    cancelling them aborts the call.

    The number of concurrent calls is not limited here. The scheduler limits the items, and would not know of a call
    that waits for a connection.
    """

    @abstractmethod
    async def call(self, method: str, message: bytes) -> bytes:
        """See `ReplicaServer.call`."""

    @abstractmethod
    def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """See `ReplicaServer.stream`. The pieces may end anywhere in a frame."""

    @abstractmethod
    async def install(self, message: bytes, archive: Archive | None) -> bytes:
        """See `ReplicaServer.install`."""

    @abstractmethod
    def is_lost(self, error: Exception) -> bool:
        """Whether an error means that the replica was lost."""

    @contextmanager
    def errors(self, late: GLiNERBentoError) -> Iterator[None]:
        """Raise `late` for a timeout, `NotReady` for a lost replica, and `InternalError` for any other error."""
        try:
            yield
        except GLiNERBentoError:
            raise
        except asyncio.TimeoutError:
            raise late from None
        except Exception as fault:
            if self.is_lost(fault):
                raise NotReady(_UNREACHABLE) from fault
            logger.exception("a call to the runner failed")
            raise InternalError() from fault

    async def control(
        self,
        kind: type[T],
        method: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float = CONTROL_TIMEOUT_S,
        late: GLiNERBentoError | None = None,
    ) -> T:
        """Call `method` of the `ReplicaServer`. Returns its result, of type `kind`; raises `late` after `timeout_s`."""
        with self.errors(late or NotReady(_UNREACHABLE)):
            answer = await within(self.call(method, encode(arguments)), timeout_s)
            reply: Reply[T] = _reply_decoder(cast(Any, kind)).decode(answer)
        return reply.unwrap()

    async def send_archive(self, kind: type[T], arguments: dict[str, Any], archive: Archive | None) -> T:
        """Call `ReplicaServer.install`; returns its result, of type `kind`. Raises what `archive` raises."""
        failures = list[Exception]()
        with self.errors(NotReady(_UNREACHABLE)):
            try:
                answer = await self.install(encode(arguments), archive and _recording(failures, archive))
                reply: Reply[T] = _reply_decoder(cast(Any, kind)).decode(answer)
            except Exception:
                if not failures:  # otherwise the archive's error, raised below, is the cause
                    raise
        if failures:
            raise failures[0]
        return reply.unwrap()


class RemoteReplica:
    """A `Replica` behind a `ReplicaServer`. Raises `NotReady` if the connection is lost. The caller may then repeat an
    extraction, which has no side effects."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.adapters = RemoteAdapters(connection)
        self.tokens_run = 0

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`."""
        message = ItemsMessage.of(items, call)
        with self._connection.errors(DeadlineExceeded.before(_ANSWERED)):
            answer = await within(self._connection.call("extract", message), _timeout_s(call))
            outcomes, self.tokens_run = OutcomesMessage.read(answer)
        return outcomes

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        """See `Replica`. A stream that is not read to its end is aborted."""
        message, frames = ItemsMessage.of([item], call), Frames()
        with self._connection.errors(DeadlineExceeded.before(_ANSWERED)):
            async with aclosing(self._connection.stream(message)) as pieces:
                while piece := await within(anext(pieces, b""), _timeout_s(call)):
                    for answer in frames.add(piece):
                        step, self.tokens_run = StreamMessage.read(answer)
                        if isinstance(step, GLiNERBentoError):
                            raise step
                        yield step
                        if isinstance(step, Result):
                            return
        raise InternalError()

    async def abort(self, request_id: str) -> bool:
        """See `Replica`."""
        return await self._connection.control(bool, "abort", {"request_id": request_id})

    async def status(self) -> ReplicaStatus:
        """See `Replica`."""
        return await self._connection.control(ReplicaStatus, "status", {})


class RemoteAdapters:
    """The `ReplicaAdapters` of a `RemoteReplica`."""

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
        """See `ReplicaAdapters`. Has no timeout; the caller sets one."""
        arguments = {"adapter_id": adapter_id, **options}
        return await self._connection.send_archive(tuple[AdapterInfo, bool], arguments, archive)

    async def remove(self, adapter_id: str, timeout_s: float) -> None:
        """See `ReplicaAdapters`."""
        await self._connection.control(
            type(None),
            "remove_adapter",
            {"adapter_id": adapter_id, "timeout_s": timeout_s},
            timeout_s=timeout_s + GRACE_S,
            late=DeadlineExceeded("the deadline passed before the adapter was removed"),
        )

    async def cache_status(self) -> AdapterCacheStatus:
        """See `ReplicaAdapters`."""
        return await self._connection.control(AdapterCacheStatus, "adapter_cache", {})


class RemoteModels:
    """The `Models` behind a `ReplicaServer`. make: makes the replica of a model, from its name."""

    def __init__(self, connection: Connection, make: Callable[[str], Replica]) -> None:
        self._connection = connection
        self.replica = make

    async def rows(self) -> Sequence[ModelRow]:
        """See `Models`."""
        return await self._connection.control(list[ModelRow], "models", {})

    async def add(self, request: AddModelRequest, timeout_s: float, archive: Archive | None = None) -> ModelRow:
        """See `Models`."""
        if archive is not None:
            arguments = {"request": request.model_dump(), "timeout_s": timeout_s}
            return await self._connection.send_archive(ModelRow, arguments, archive)
        return await self._change(ModelRow, "add_model", timeout_s, request=request.model_dump())

    async def change(self, name: str, action: ModelAction, timeout_s: float) -> ModelRow:
        """See `Models`."""
        return await self._change(ModelRow, "change_model", timeout_s, name=name, action=action)

    async def remove(self, name: str, timeout_s: float) -> None:
        """See `Models`."""
        await self._change(type(None), "remove_model", timeout_s, name=name)

    async def _change(self, kind: type[T], method: str, timeout_s: float, **arguments: Any) -> T:
        arguments["timeout_s"] = timeout_s
        return await self._connection.control(kind, method, arguments, timeout_s=timeout_s + GRACE_S)


class ReplicaServer:
    """Answers the messages of `RemoteReplica`s. Cancelling a call, or closing its stream, aborts its items.

    more: methods besides those of `calls_of`, by name.
    """

    def __init__(self, replica: Replica, more: Mapping[str, Callable[..., Awaitable[Any]]] | None = None) -> None:
        self.replica = replica
        self._calls = {**calls_of(replica), **(more or {})}

    async def extract(self, message: bytes) -> Sequence[Outcome]:
        """The outcomes of an `ItemsMessage`."""
        items, call = ItemsMessage.read(message)
        try:
            return await self.replica.extract(items, call)
        except GLiNERBentoError as error:
            return [error] * len(items)

    async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """`ItemsMessage` of one item -> frames of `StreamMessage`."""
        async with aclosing(stream_messages(self.replica, message)) as answers:
            async for answer in answers:
                yield frame(answer)

    async def call(self, method: str, message: bytes) -> bytes:
        """`extract`: `ItemsMessage` -> `OutcomesMessage`; any other method: arguments by name -> `Reply`."""
        if method == "extract":
            outcomes = await self.extract(message)
            return b"".join(OutcomesMessage.of(outcomes, self.replica.tokens_run))
        return encode(await reply_to(self._calls[method](**msgspec.msgpack.decode(message))))

    async def install(self, message: bytes, archive: Archive | None) -> bytes:
        """Arguments of `ReplicaAdapters.install`, or of `Models.add`, by name -> `Reply`."""
        arguments = msgspec.msgpack.decode(message)
        is_model = "request" in arguments
        install = self._calls["add_model"] if is_model else partial(call_adapters, self.replica, "install")
        return encode(await reply_to(install(**arguments, archive=archive)))


async def _recording(failures: list[Exception], archive: Archive) -> AsyncIterator[bytes]:
    """The same archive; an error in reading it is appended to `failures`. A cancellation is not appended, because the
    transport cancels the upload if the replica answers before it has read the whole archive."""
    try:
        async for piece in archive:
            yield piece
    except Exception as failure:
        failures.append(failure)
        raise


def _timeout_s(call: Call) -> float:
    return call.wait_s(time.monotonic()) + GRACE_S


@cache
def _reply_decoder(kind: Any) -> Any:
    return decoder(Reply[kind])
