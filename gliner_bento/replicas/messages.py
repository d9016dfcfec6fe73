"""The messages between gateway and runner, in msgpack. Errors are data (docs/decisions/0002-errors-as-data.md).

The first field of a message with items or results is the name of their task, which determines their types.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import cache, partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from gliner_bento.errors import ErrorDetail, GLiNERBentoError, from_detail
from gliner_bento.model_types import AddModelRequest, ModelRow
from gliner_bento.replicas.base import Archive, Call, Models, Outcome, Replica, StreamStep
from gliner_bento.tasks.base import AnyTask, Item, Result
from gliner_bento.tasks.table import TASKS

T = TypeVar("T")
P = TypeVar("P")

encode = msgspec.msgpack.Encoder().encode

_LENGTH_BYTES = 4


class CallMessage(Struct, array_like=True):
    """A `Call`. timeout_s: time left until the deadline, because clocks differ between processes."""

    request_id: str
    timeout_s: float
    priority: int
    tenant: str
    weight: float
    crosses_tenants: bool
    trace: str | None = None
    idle_timeout_s: float = math.inf

    @classmethod
    def of(cls, call: Call) -> CallMessage:
        """The message with a call."""
        share = call.tenant, call.weight, call.crosses_tenants
        timeout_s = call.deadline_s - time.monotonic()
        return cls(call.request_id, timeout_s, call.priority, *share, call.trace, call.idle_timeout_s)

    def to_call(self) -> Call:
        """The call, with its deadline on this process's clock."""
        deadline_s = time.monotonic() + self.timeout_s
        share = self.tenant, self.weight, self.crosses_tenants
        return Call(self.request_id, deadline_s, self.priority, *share, self.trace, self.idle_timeout_s)


class ItemsMessage(Struct, Generic[T], array_like=True):
    """Arguments of `Replica.extract`, or of `Replica.stream` (one item). task: name of the items' task."""

    task: str
    items: list[T]
    call: CallMessage

    @classmethod
    def of(cls, items: Sequence[Item], call: Call) -> bytes:
        """The message, encoded."""
        return encode(ItemsMessage(items[0].task if items else "", list(items), CallMessage.of(call)))

    @staticmethod
    def read(message: bytes) -> tuple[list[Item], Call]:
        """The arguments in a message."""
        decoded = _decode(ItemsMessage, message)
        return decoded.items, decoded.call.to_call()


class Reply(Struct, Generic[T], array_like=True):
    """A result or an error."""

    result: T | None = None
    error: ErrorDetail | None = None

    def outcome(self) -> T | GLiNERBentoError:
        """The result, or the error as an exception."""
        return self.result if self.error is None else from_detail(self.error)  # type: ignore[return-value]

    def unwrap(self) -> T:
        """The result; raises the error."""
        if isinstance(outcome := self.outcome(), GLiNERBentoError):
            raise outcome
        return outcome

    @classmethod
    def of(cls, outcome: T | GLiNERBentoError) -> Reply[T]:
        """The reply with a call's result or error."""
        return cls(error=outcome.detail()) if isinstance(outcome, GLiNERBentoError) else cls(result=outcome)


def calls_of(replica: Replica) -> dict[str, Callable[..., Awaitable[Any]]]:
    """The methods of a replica and its adapters that take and return plain data, by the name under which a
    `RemoteReplica` calls them."""
    methods = {"adapters": "list", "adapter": "get", "remove_adapter": "remove", "adapter_cache": "cache_status"}
    of_adapters = {name: partial(call_adapters, replica, method) for name, method in methods.items()}
    return {"abort": replica.abort, "status": replica.status, **of_adapters}


async def call_adapters(replica: Replica, method: str, **arguments: Any) -> Any:
    """Call a method of `replica.adapters`, which is read at each call because an unloaded model has no adapters."""
    return await getattr(replica.adapters, method)(**arguments)


def calls_of_models(models: Models) -> dict[str, Callable[..., Awaitable[Any]]]:
    """The methods of `Models`, by the name under which a `RemoteModels` calls them."""

    async def add(request: dict[str, Any], timeout_s: float, archive: Archive | None = None) -> ModelRow:
        return await models.add(AddModelRequest(**request), timeout_s, archive)

    return {"models": models.rows, "add_model": add, "change_model": models.change, "remove_model": models.remove}


async def reply_to(call: Awaitable[T]) -> Reply[T]:
    """Await a call; returns the reply with its result, or with the `GLiNERBentoError` that it raises."""
    try:
        return Reply.of(await call)
    except GLiNERBentoError as error:
        return Reply.of(error)


class OutcomesMessage(Struct, Generic[T], array_like=True):
    """Outcomes of `Replica.extract`. task: name of the results' task; empty if there is no result. tokens_run: see
    `Replica`."""

    task: str
    replies: list[Reply[T]]
    tokens_run: int = 0

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], tokens_run: int) -> Iterator[bytes]:
        """The encoded message in pieces, a piece for each outcome, because the whole may be large."""
        task = next((outcome.task for outcome in outcomes if isinstance(outcome, Result)), "")
        yield _array_header(3) + encode(task) + _array_header(len(outcomes))  # 3: the number of fields
        yield from (encode(Reply.of(outcome)) for outcome in outcomes)
        yield encode(tokens_run)

    @staticmethod
    def read(message: bytes) -> tuple[list[Outcome], int]:
        """The outcomes in a message, and `tokens_run`."""
        decoded = _decode(OutcomesMessage, message)
        return [reply.outcome() for reply in decoded.replies], decoded.tokens_run


class StreamMessage(Struct, Generic[T, P], array_like=True):
    """A `StreamStep` or an error. parts: those that have become final. last: the result or error that ends the stream.
    tokens_run: see `Replica`."""

    task: str
    parts: Sequence[P] = ()
    last: Reply[T] | None = None
    tokens_run: int = 0

    @classmethod
    def of(cls, task: str, step: StreamStep | GLiNERBentoError, tokens_run: int) -> bytes:
        """The message, encoded. A result or an error ends the stream."""
        if isinstance(step, Result | GLiNERBentoError):
            return encode(StreamMessage(task, last=Reply.of(step), tokens_run=tokens_run))
        return encode(StreamMessage(task, step, tokens_run=tokens_run))

    @staticmethod
    def read(message: bytes) -> tuple[StreamStep | GLiNERBentoError, int]:
        """The step or the error in a message, and `tokens_run`."""
        decoded = _decode(StreamMessage, message)
        return decoded.last.outcome() if decoded.last else decoded.parts, decoded.tokens_run


async def stream_messages(replica: Replica, message: bytes) -> AsyncGenerator[bytes, None]:
    """Run `Replica.stream`. message: an `ItemsMessage` of one item."""
    (item,), call = ItemsMessage.read(message)
    try:
        async with aclosing(replica.stream(item, call)) as steps:
            async for step in steps:
                yield StreamMessage.of(item.task, step, replica.tokens_run)
    except GLiNERBentoError as error:
        yield StreamMessage.of(item.task, error, replica.tokens_run)


def _array_header(length: int) -> bytes:
    """The bytes that precede the elements of a msgpack array."""
    nones = encode([None] * length)  # the header, then one byte per None
    return nones[: len(nones) - length]


def _decode(kind: Any, message: bytes) -> Any:
    """Decode a message of this kind, whose first field is the name of the task."""
    name_bytes = message[1] & 0x1F  # message[0]: header of an array; [1]: of a string, whose length is the low 5 bits
    task = message[2 : 2 + name_bytes].decode()
    return _decoder_of(kind, TASKS.get(task)).decode(message)


@cache
def _decoder_of(kind: Any, task: AnyTask | None) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a kind of message, whose type arguments are attributes of the task. task: None for a message
    without items, or with errors only."""
    attributes = {ItemsMessage: ("item",), OutcomesMessage: ("result",), StreamMessage: ("result", "part")}[kind]
    types = tuple(getattr(task, attribute, Any) for attribute in attributes)
    return decoder(kind[types])


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of messages of one type. Expensive: make it once."""
    return msgspec.msgpack.Decoder(kind)


def frame(message: bytes) -> bytes:
    """A message preceded by its length, because a stream arrives in pieces that may end anywhere."""
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


class Frames:
    """Reassembles the messages of a stream of frames from its pieces.

    rest: the bytes that arrived after the last complete message.
    """

    def __init__(self) -> None:
        self.rest = bytearray()

    def add(self, piece: bytes) -> Iterator[bytes]:
        """The messages that are complete with this piece."""
        self.rest += piece
        while len(self.rest) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self.rest[:_LENGTH_BYTES], "big")
            if len(self.rest) < end:
                return
            message = bytes(self.rest[_LENGTH_BYTES:end])
            del self.rest[:end]
            yield message
