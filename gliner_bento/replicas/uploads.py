"""Adapter archives during their upload: one file each, kept until it is installed, discarded or abandoned."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from gliner_bento.errors import NotReady, StorageFull

PIECE_BYTES = 2**20

ABANDONED_S = 600.0
"""An upload that received nothing for this long is deleted when another one begins."""


class Uploads:
    """Thread-safe. Replicas with the same folder share it: the pieces of one archive may reach any of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, upload_id: str) -> Path:
        """The archive's file; raises `NotReady` if it is not here."""
        path = self._folder / upload_id
        if not path.is_file():
            raise NotReady("the upload was lost; send it again")
        return path

    def write(self, upload_id: str, offset: int, data: bytes) -> None:
        """Write `data` at `offset`; 0 begins the file. Repeating a piece is harmless.

        Raises `NotReady` if the beginning of the file is not here, and `StorageFull`.
        """
        try:
            if not offset:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._delete_abandoned()
                (self._folder / upload_id).touch()
            with self.path_of(upload_id).open("r+b") as file:
                file.seek(offset)
                file.write(data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise StorageFull("the server has no room for the upload") from None

    def discard(self, upload_id: str) -> None:
        """Delete what has arrived of an upload."""
        (self._folder / upload_id).unlink(missing_ok=True)

    def _delete_abandoned(self) -> None:
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink()


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
