"""Sends a large answer in pieces, between which other requests get their turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

PIECE_BYTES = 64 * 1024


def next_piece(parts: Iterator[bytes]) -> bytes:
    """The next parts, joined to at least `PIECE_BYTES`; fewer bytes at the end, and none after it."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= PIECE_BYTES:
            break
    return bytes(piece)


async def coalesced(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The parts, joined to pieces of at least `PIECE_BYTES`."""
    parts = iter(parts)
    while piece := next_piece(parts):
        yield piece
        if len(piece) < PIECE_BYTES:
            return
        await asyncio.sleep(0)
