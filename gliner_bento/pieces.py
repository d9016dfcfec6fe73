"""Sends a large answer in pieces, between which other requests get their turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

PIECE_BYTES = 64 * 1024


async def coalesced(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The parts, joined to pieces of at least `PIECE_BYTES`."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
            await asyncio.sleep(0)
    yield bytes(piece)
