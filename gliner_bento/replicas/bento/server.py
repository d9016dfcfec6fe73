"""The runner's side of the transport: messages in, calls of the replica, replies out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from gliner_bento.errors import GLiNERBentoError
from gliner_bento.replicas.base import Call, Replica
from gliner_bento.replicas.bento.messages import (
    ExtractMessage,
    Reply,
    StreamMessage,
    StreamPart,
    decoder,
    encode,
    frame,
)
from gliner_bento.replicas.uploads import Uploads
from gliner_bento.types import AdapterInfo, Entity, Extraction

_extract_message = decoder(ExtractMessage)
_stream_message = decoder(StreamMessage)


class ReplicaServer:
    """Serves `replica` to a `BentoReplica`. uploads: where adapter archives are kept while they arrive."""

    def __init__(self, replica: Replica, uploads: Uploads) -> None:
        self._replica = replica
        self._uploads = uploads
        self._streams: dict[str, _Stream] = {}
        adapters = replica.adapters
        self._controls: dict[str, Callable[..., Awaitable[Any]]] = {
            "abort": replica.abort,
            "status": replica.status,
            "stop_stream": self._stop_stream,
            "adapters": adapters.list,
            "adapter": adapters.get,
            "upload": self._upload,
            "discard_upload": self._discard_upload,
            "install_adapter": self._install_adapter,
            "remove_adapter": adapters.remove,
            "adapter_cache": adapters.cache_status,
        }

    async def extract(self, message: bytes) -> bytes:
        """Answer an `ExtractMessage` with a list of `Reply[Extraction]`."""
        arguments: ExtractMessage = _extract_message.decode(message)
        outcomes = await self._replica.extract(arguments.items, _call(arguments))
        return encode([Reply.of(outcome) for outcome in outcomes])

    async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """Answer a `StreamMessage` with frames of `StreamPart`; ends at `stop_stream`."""
        arguments: StreamMessage = _stream_message.decode(message)
        stream = self._streams[arguments.stream_id] = _Stream(self._replica.stream(arguments.item, _call(arguments)))
        try:
            while part := await stream.next_part():
                yield frame(encode(part))
        finally:
            del self._streams[arguments.stream_id]
            await stream.stop()

    async def control(self, method: str, arguments: bytes) -> bytes:
        """Answer any other call, of one of `_controls` with its arguments by name, with a `Reply`."""
        try:
            return encode(Reply(result=await self._controls[method](**msgspec.msgpack.decode(arguments))))
        except GLiNERBentoError as error:
            return encode(Reply.of(error))

    async def _stop_stream(self, stream_id: str) -> None:
        """End a stream that its client no longer reads; the connection may stay open."""
        if stream := self._streams.get(stream_id):
            await stream.stop()

    async def _upload(self, upload_id: str, offset: int, data: bytes) -> None:
        await asyncio.to_thread(self._uploads.write, upload_id, offset, data)

    async def _discard_upload(self, upload_id: str) -> None:
        await asyncio.to_thread(self._uploads.discard, upload_id)

    async def _install_adapter(
        self, adapter_id: str, upload_id: str | None, options: dict[str, Any]
    ) -> tuple[AdapterInfo, bool]:
        archive = self._uploads.path_of(upload_id) if upload_id else None
        return await self._replica.adapters.install(adapter_id, archive=archive, **options)


def _call(message: ExtractMessage | StreamMessage) -> Call:
    return Call(message.request_id, time.monotonic() + message.timeout_ms / 1000, message.priority)


class _Stream:
    """A stream of the replica. `stop` ends it at any time, also while its connection blocks and no part is awaited."""

    def __init__(self, parts: AsyncGenerator[Sequence[Entity] | Extraction, None]) -> None:
        self._parts = parts
        self._pending: asyncio.Future[StreamPart | None] | None = None

    async def next_part(self) -> StreamPart | None:
        """The next part; None after the last one, and after `stop`."""
        self._pending = asyncio.ensure_future(self._read())
        await asyncio.wait([self._pending])
        return None if self._pending.cancelled() else self._pending.result()

    async def stop(self) -> None:
        """Abort the item, unless it has ended."""
        if self._pending and not self._pending.done():
            self._pending.cancel()
            await asyncio.wait([self._pending])
        await self._parts.aclose()

    async def _read(self) -> StreamPart | None:
        try:
            part = await self._parts.__anext__()
        except StopAsyncIteration:
            return None
        except GLiNERBentoError as error:
            return StreamPart(last=Reply.of(error))
        return StreamPart(last=Reply(result=part)) if isinstance(part, Extraction) else StreamPart(part)
