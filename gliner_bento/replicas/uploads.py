"""Adapter archives while they arrive: one file each."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from gliner_bento.errors import StorageFull

PIECE_BYTES = 2**20

ABANDONED_S = 3600.0
"""A file that received nothing for this long was left by a process that ended; it is deleted when another begins."""


class Uploads:
    """Files in a folder, which processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def receive(self, archive: AsyncIterable[bytes]) -> Path | None:
        """The file that an archive has been written to, which the caller deletes; None for an empty archive.

        Raises `StorageFull`, `OSError`, and what `archive` raises; no file is left then.
        """
        path: Path | None = None
        try:
            async for piece in in_pieces(archive):
                if path is None:
                    path = await asyncio.to_thread(self._begin)
                await asyncio.to_thread(_append, path, piece)
        except BaseException as error:
            if path:
                path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull("the server has no room for the upload") from None
            raise
        return path

    def _begin(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._delete_abandoned()
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            return Path(file.name)

    def _delete_abandoned(self) -> None:
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink()


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def in_pieces(archive: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `PIECE_BYTES`, the last one shorter."""
    buffer = bytearray()
    async for part in archive:
        buffer += part
        while len(buffer) >= PIECE_BYTES:
            yield bytes(buffer[:PIECE_BYTES])
            del buffer[:PIECE_BYTES]
    if buffer:
        yield bytes(buffer)
