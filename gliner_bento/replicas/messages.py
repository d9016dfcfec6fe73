"""The messages between gateway and runner, in msgpack. Errors are data (docs/decisions/0002-errors-as-data.md).

Items and results are a tagged union: the first field of their messages is the name of the task.
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
from gliner_bento.replicas.base import Archive, Call, Models, Outcome, Part, Replica
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

    def call(self) -> Call:
        """The call, on this process's clock."""
        deadline_s = time.monotonic() + self.timeout_s
        share = self.tenant, self.weight, self.crosses_tenants
        return Call(self.request_id, deadline_s, self.priority, *share, self.trace, self.idle_timeout_s)


class ItemsMessage(Struct, Generic[T], array_like=True):
    """Arguments of `Replica.extract`, or of `Replica.stream`: one item. All items have one task."""

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
        sent = _decoded(ItemsMessage, message)
        return sent.items, sent.call.call()


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
    """The methods of a replica and its adapters that take and return plain data, by their names in messages."""
    adapters = {"adapters": "list", "adapter": "get", "remove_adapter": "remove", "adapter_cache": "cache_status"}
    of_adapters = {name: partial(call_adapters, replica, method) for name, method in adapters.items()}
    return {"abort": replica.abort, "status": replica.status, **of_adapters}


async def call_adapters(replica: Replica, method: str, **arguments: Any) -> Any:
    """Call a method of the replica's adapters, which it may not have now."""
    return await getattr(replica.adapters, method)(**arguments)


def calls_of_models(models: Models) -> dict[str, Callable[..., Awaitable[Any]]]:
    """The methods of `Models`, by their names in messages."""

    async def add(request: dict[str, Any], timeout_s: float, archive: Archive | None = None) -> ModelRow:
        return await models.add(AddModelRequest(**request), timeout_s, archive)

    return {"models": models.rows, "add_model": add, "change_model": models.change, "remove_model": models.remove}


async def reply_to(answer: Awaitable[T]) -> Reply[T]:
    """The reply with an answer, or with the `GLiNERBentoError` that it raises."""
    try:
        return Reply.of(await answer)
    except GLiNERBentoError as error:
        return Reply.of(error)


class OutcomesMessage(Struct, Generic[T], array_like=True):
    """Outcomes of `Replica.extract`. tokens_run: see `Replica`."""

    task: str
    replies: list[Reply[T]]
    tokens_run: int = 0

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], tokens_run: int) -> Iterator[bytes]:
        """The pieces of the encoded message, one for each outcome: an answer may be large."""
        number = len(outcomes)
        task = next((one.task for one in outcomes if isinstance(one, Result)), "")
        yield encode([None] * 3)[:1] + encode(task) + encode([None] * number)[: -number or None]
        yield from (encode(Reply.of(outcome)) for outcome in outcomes)
        yield encode(tokens_run)

    @staticmethod
    def read(message: bytes) -> tuple[list[Outcome], int]:
        """The outcomes in a message, and `tokens_run`."""
        sent = _decoded(OutcomesMessage, message)
        return [reply.outcome() for reply in sent.replies], sent.tokens_run


class StreamMessage(Struct, Generic[T, P], array_like=True):
    """A frame of a stream: parts that became final, or in the last frame the result or error. tokens_run: see
    `Replica`."""

    task: str
    parts: Sequence[P] = ()
    last: Reply[T] | None = None
    tokens_run: int = 0

    @classmethod
    def of(cls, task: str, part: Part | GLiNERBentoError, tokens_run: int) -> bytes:
        """The message, encoded. part: a result or an error ends the stream."""
        if isinstance(part, Result | GLiNERBentoError):
            return encode(StreamMessage(task, last=Reply.of(part), tokens_run=tokens_run))
        return encode(StreamMessage(task, part, tokens_run=tokens_run))

    @staticmethod
    def read(message: bytes) -> tuple[Part | GLiNERBentoError, int]:
        """The part or the error in a message, and `tokens_run`."""
        sent = _decoded(StreamMessage, message)
        return sent.last.outcome() if sent.last else sent.parts, sent.tokens_run


async def stream_messages(replica: Replica, message: bytes) -> AsyncGenerator[bytes, None]:
    """Run `Replica.stream`. message: an `ItemsMessage` of one item."""
    (item,), call = ItemsMessage.read(message)
    try:
        async with aclosing(replica.stream(item, call)) as parts:
            async for part in parts:
                yield StreamMessage.of(item.task, part, replica.tokens_run)
    except GLiNERBentoError as error:
        yield StreamMessage.of(item.task, error, replica.tokens_run)


def _decoded(kind: Any, message: bytes) -> Any:
    """A message of this kind. In msgpack, two bytes precede its first field, the task: array, length of the task."""
    name = message[2 : 2 + (message[1] & 0x1F)].decode()
    return _decoder_of(kind, TASKS.get(name)).decode(message)


@cache
def _decoder_of(kind: Any, task: AnyTask | None) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a kind of message for a task; None for a message without items, or with errors only."""
    types = {ItemsMessage: ("item",), OutcomesMessage: ("result",), StreamMessage: ("result", "part")}[kind]
    return decoder(kind[tuple(getattr(task, name, Any) for name in types)])


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of messages of one type. Expensive: make it once."""
    return msgspec.msgpack.Decoder(kind)


def frame(message: bytes) -> bytes:
    """A message of a stream, preceded by its length, because a stream arrives in pieces that may end anywhere."""
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


class Frames:
    """Reassembles the messages of a stream from its pieces.

    rest: the bytes of a message that has not arrived completely.
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
