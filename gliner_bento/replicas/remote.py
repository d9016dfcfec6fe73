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
from typing import Any, TypeVar, cast

import msgspec

from gliner_bento.commands import BY_NAME, RULES, AdapterCommand, Command, ModelCommand
from gliner_bento.errors import DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.model_types import ModelRow
from gliner_bento.replicas.base import Archive, Call, Models, Outcome, Replica, ReplicaStatus, StreamStep
from gliner_bento.replicas.ended import step_within, within
from gliner_bento.replicas.messages import (
    Frames,
    ItemsMessage,
    OutcomesMessage,
    Reply,
    StreamMessage,
    decoder_of,
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
    """A connection to one `ReplicaServer`. `call` and `stream` raise the transport's own errors; closing or cancelling
    them aborts the call.

    The number of concurrent calls is not limited here. The scheduler limits the items, and would not know of a call
    that waits for a connection.
    """

    @abstractmethod
    async def call(self, method: str, message: bytes, archive: Archive | None = None) -> bytes:
        """See `ReplicaServer.call`."""

    @abstractmethod
    def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """See `ReplicaServer.stream`. The pieces may end anywhere in a frame."""

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

    async def control(self, kind: Any, method: str, arguments: Mapping[str, Any]) -> Any:
        """Call a `method` of the `ReplicaServer` that is answered soon. Returns its result, of type `kind`."""
        return await self._ask(kind, method, encode(arguments), CONTROL_TIMEOUT_S)

    async def apply(self, command: Command[T], archive: Archive | None = None) -> T:
        """Have the `ReplicaServer` carry out a command. Raises what `archive` raises. A command without a `timeout_s`,
        or with an archive, has no timeout here; the caller sets one."""
        rule, name, message = RULES[type(command)], type(command).__name__, encode(command)
        if archive is not None:
            return cast(T, await self._send(rule.result, name, message, archive))
        limit_s = getattr(command, "timeout_s", None)
        timeout_s = CONTROL_TIMEOUT_S if rule.reads else limit_s and limit_s + GRACE_S
        late = DeadlineExceeded(rule.late) if rule.late else NotReady(_UNREACHABLE)
        return cast(T, await self._ask(rule.result, name, message, timeout_s, late))

    async def _ask(
        self, kind: Any, method: str, message: bytes, timeout_s: float | None, late: GLiNERBentoError | None = None
    ) -> Any:
        with self.errors(late or NotReady(_UNREACHABLE)):
            answer = await within(self.call(method, message), timeout_s)
            reply: Reply[Any] = decoder_of(Reply[kind]).decode(answer)
        return reply.unwrap()

    async def _send(self, kind: Any, method: str, message: bytes, archive: Archive) -> Any:
        failures = list[Exception]()
        with self.errors(NotReady(_UNREACHABLE)):
            try:
                answer = await self.call(method, message, _recording(failures, archive))
                reply: Reply[Any] = decoder_of(Reply[kind]).decode(answer)
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
        self.tokens_run = 0

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
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
                while piece := await step_within(anext(pieces, b""), _timeout_s(call)):
                    for answer in frames.add(piece):
                        step, self.tokens_run = StreamMessage.read(answer)
                        if isinstance(step, GLiNERBentoError):
                            raise step
                        yield step
                        if isinstance(step, Result):
                            return
        raise InternalError()

    async def abort(self, request_id: str) -> bool:
        return bool(await self._connection.control(bool, "abort", {"request_id": request_id}))

    async def status(self) -> ReplicaStatus:
        status: ReplicaStatus = await self._connection.control(ReplicaStatus, "status", {})
        return status

    async def apply(self, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        return await self._connection.apply(command, archive)


class RemoteModels:
    """The `Models` behind a `ReplicaServer`. make: makes the replica of a model, from its name."""

    def __init__(self, connection: Connection, make: Callable[[str], Replica]) -> None:
        self._connection = connection
        self.replica = make

    async def rows(self) -> Sequence[ModelRow]:
        rows: list[ModelRow] = await self._connection.control(list[ModelRow], "models", {})
        return rows

    async def apply(self, command: ModelCommand[T], archive: Archive | None = None) -> T:
        return await self._connection.apply(command, archive)

    def forget(self, name: str) -> None:
        """Does nothing: whoever has called `replica` ends it."""


class ReplicaServer:
    """Answers the messages of `RemoteReplica`s and `RemoteModels`. Cancelling a call, or closing its stream, aborts its
    items. models: None if the replica's process has no table of models. more: further methods, by name.
    """

    def __init__(
        self,
        replica: Replica,
        models: Models | None = None,
        more: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
    ) -> None:
        self.replica, self._models = replica, models
        self._calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "abort": replica.abort,
            "status": replica.status,
            **(more or {}),
        }
        if models:
            self._calls["models"] = models.rows

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

    async def call(self, method: str, message: bytes, archive: Archive | None = None) -> bytes:
        """`extract`: `ItemsMessage` -> `OutcomesMessage`; the name of a command: the command, and the archive that
        comes with it -> `Reply`; any other method: arguments by name -> `Reply`."""
        if method == "extract":
            outcomes = await self.extract(message)
            return b"".join(OutcomesMessage.of(outcomes, self.replica.tokens_run))
        if kind := BY_NAME.get(method):
            return encode(await reply_to(self._apply(decoder_of(kind).decode(message), archive)))
        return encode(await reply_to(self._calls[method](**msgspec.msgpack.decode(message))))

    async def _apply(self, command: Command[Any], archive: Archive | None) -> Any:
        if isinstance(command, AdapterCommand):
            return await self.replica.apply(command, archive)
        assert isinstance(command, ModelCommand)
        assert self._models, "the replica's process has no table of models"
        return await self._models.apply(command, archive)


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
