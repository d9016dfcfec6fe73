"""The messages between gateway and runner, in msgpack. Errors are data (docs/decisions/0002-errors-as-data.md)."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from gliner_bento.errors import ErrorDetail, GLiNERBentoError, from_detail
from gliner_bento.replicas.base import Call, Replica
from gliner_bento.types import Entity, Extraction, Item

T = TypeVar("T")

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


class ExtractMessage(Struct, array_like=True):
    """Arguments of `Replica.extract`."""

    items: list[Item]
    call: CallMessage


class StreamMessage(Struct, array_like=True):
    """Arguments of `Replica.stream`."""

    item: Item
    call: CallMessage


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
    """The methods of a replica and its adapters that take and return plain data, by the names that messages have."""
    adapters = replica.adapters
    return {
        "abort": replica.abort,
        "status": replica.status,
        "adapters": adapters.list,
        "adapter": adapters.get,
        "remove_adapter": adapters.remove,
        "adapter_cache": adapters.cache_status,
    }


async def reply_to(answer: Awaitable[T]) -> Reply[T]:
    """The reply with an answer, or with the error of the tree that it raises."""
    try:
        return Reply.of(await answer)
    except GLiNERBentoError as error:
        return Reply.of(error)


class Outcomes(Struct, array_like=True):
    """Results of `Replica.extract`. tokens_run: see `Replica`."""

    replies: list[Reply[Extraction]]
    tokens_run: int = 0

    def encoded(self) -> Iterator[bytes]:
        """The pieces of `encode(self)`, one for each reply: an answer may be large."""
        number = len(self.replies)
        yield encode([None, None])[:1] + encode([None] * number)[: -number or None]
        yield from map(encode, self.replies)
        yield encode(self.tokens_run)


class StreamPart(Struct, array_like=True):
    """A frame of a stream: entities that became final; in the last frame the result or error instead.

    tokens_run: see `Replica`.
    """

    entities: Sequence[Entity] = ()
    last: Reply[Extraction] | None = None
    tokens_run: int = 0


def stream_part(part: Sequence[Entity] | Extraction, tokens_run: int) -> StreamPart:
    """The message with a part of a stream."""
    if isinstance(part, Extraction):
        return StreamPart(last=Reply(result=part), tokens_run=tokens_run)
    return StreamPart(part, tokens_run=tokens_run)


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of messages of one type; make it once."""
    return msgspec.msgpack.Decoder(kind)


def frame(message: bytes) -> bytes:
    """A message of a stream, preceded by its length: the pieces in which a stream arrives may end anywhere."""
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


class Frames:
    """Reassembles the messages of a stream from its pieces.

    rest: what has arrived of the message that is not complete.
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
