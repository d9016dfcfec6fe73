"""The messages between gateway and runner, in msgpack. Errors are data (docs/decisions/0002-errors-as-data.md)."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from gliner_bento.errors import ErrorDetail, GLiNERBentoError, from_detail
from gliner_bento.replicas.base import Call, Outcome, Replica, StreamStep
from gliner_bento.tasks.base import Item, Result
from gliner_bento.tasks.extraction import Entity, Extraction, ExtractionItem

T = TypeVar("T")

encode = msgspec.msgpack.Encoder(enc_hook=lambda model: model.model_dump()).encode
"""Encodes a message; a model of pydantic as a map of its fields."""

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


class ItemsMessage(Struct, array_like=True):
    """Arguments of `Replica.extract`, or of `Replica.stream` (one item)."""

    items: list[ExtractionItem]
    call: CallMessage

    @classmethod
    def of(cls, items: Sequence[Item], call: Call) -> bytes:
        """The message, encoded."""
        return encode((items, CallMessage.of(call)))

    @staticmethod
    def read(message: bytes) -> tuple[Sequence[Item], Call]:
        """The arguments in a message."""
        decoded = _ITEMS.decode(message)
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


async def reply_to(call: Awaitable[T]) -> Reply[T]:
    """Await a call; returns the reply with its result, or with the `GLiNERBentoError` that it raises."""
    try:
        return Reply.of(await call)
    except GLiNERBentoError as error:
        return Reply.of(error)


class OutcomesMessage(Struct, array_like=True):
    """Outcomes of `Replica.extract`. tokens_run: see `Replica`."""

    replies: list[Reply[Extraction]]
    tokens_run: int = 0

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], tokens_run: int) -> Iterator[bytes]:
        """The encoded message in pieces, a piece for each outcome, because the whole may be large."""
        yield _array_header(2) + _array_header(len(outcomes))  # 2: the number of fields
        yield from (encode(Reply.of(outcome)) for outcome in outcomes)
        yield encode(tokens_run)

    @staticmethod
    def read(message: bytes) -> tuple[list[Outcome], int]:
        """The outcomes in a message, and `tokens_run`."""
        decoded = _OUTCOMES.decode(message)
        return [reply.outcome() for reply in decoded.replies], decoded.tokens_run


class StreamMessage(Struct, array_like=True):
    """A `StreamStep` or an error. parts: those that have become final. last: the result or error that ends the stream.
    tokens_run: see `Replica`."""

    parts: Sequence[Entity] = ()
    last: Reply[Extraction] | None = None
    tokens_run: int = 0

    @classmethod
    def of(cls, step: StreamStep | GLiNERBentoError, tokens_run: int) -> bytes:
        """The message, encoded. A result or an error ends the stream."""
        if isinstance(step, Result | GLiNERBentoError):
            return encode(cls(last=Reply.of(cast(Any, step)), tokens_run=tokens_run))
        return encode(cls(step, tokens_run=tokens_run))

    @staticmethod
    def read(message: bytes) -> tuple[StreamStep | GLiNERBentoError, int]:
        """The step or the error in a message, and `tokens_run`."""
        decoded = _STREAM.decode(message)
        return decoded.last.outcome() if decoded.last else decoded.parts, decoded.tokens_run


async def stream_messages(replica: Replica, message: bytes) -> AsyncGenerator[bytes, None]:
    """Run `Replica.stream`. message: an `ItemsMessage` of one item."""
    (item,), call = ItemsMessage.read(message)
    try:
        async with aclosing(replica.stream(item, call)) as steps:
            async for step in steps:
                yield StreamMessage.of(step, replica.tokens_run)
    except GLiNERBentoError as error:
        yield StreamMessage.of(error, replica.tokens_run)


def _array_header(length: int) -> bytes:
    """The bytes that precede the elements of a msgpack array."""
    nones = encode([None] * length)  # the header, then one byte per None
    return nones[: len(nones) - length]


@cache
def decoder_of(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of messages of one type, which may contain models of pydantic."""
    return msgspec.msgpack.Decoder(kind, dec_hook=lambda model, fields: model(**fields))


_ITEMS: msgspec.msgpack.Decoder[ItemsMessage] = decoder_of(ItemsMessage)
_OUTCOMES: msgspec.msgpack.Decoder[OutcomesMessage] = decoder_of(OutcomesMessage)
_STREAM: msgspec.msgpack.Decoder[StreamMessage] = decoder_of(StreamMessage)


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
