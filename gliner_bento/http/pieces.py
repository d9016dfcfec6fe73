"""Sends a large answer in pieces; the event loop serves other requests between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

PIECE_BYTES = 64 * 1024


class PiecesResponse(StreamingResponse):
    """A response in pieces, of an app behind `CancelOnDisconnect`, which cancels it once if the client disconnects.

    Starlette's own response also watches the connection, and then cancels its pieces repeatedly: even while they end.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        await self.stream_response(send)


def next_piece(parts: Iterator[bytes]) -> bytes:
    """The next parts, joined to a piece of at least `PIECE_BYTES`. The last piece is shorter, possibly empty."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= PIECE_BYTES:
            break
    return bytes(piece)


async def coalesced(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The parts, joined to pieces of at least `PIECE_BYTES`; the last piece may be shorter."""
    parts = iter(parts)
    while piece := next_piece(parts):
        yield piece
        if len(piece) < PIECE_BYTES:
            return
        await asyncio.sleep(0)
