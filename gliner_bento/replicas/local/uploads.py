"""Writes archives to files as they arrive. A process locks its files; if it dies, another process deletes them."""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from gliner_bento.adapters.storage_errors import storage_errors
from gliner_bento.storage.files import file_lock

PIECE_BYTES = 2**20
_PREFIX, _SUFFIX = "upload-", ".archive"


class Upload:
    """An archive in a file of its own in `folder`. Delete it after use."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = tempfile.NamedTemporaryFile(  # noqa: SIM115
            dir=folder, prefix=_PREFIX, suffix=_SUFFIX, delete=False, buffering=0
        )
        self.path = Path(self._file.name)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def append(self, piece: bytes) -> None:
        """Write all of `piece`."""
        rest = memoryview(piece)
        while rest:
            rest = rest[self._file.write(rest) :]

    def delete(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
        self._file.close()


class Uploads:
    """Files in a folder, which processes may share. param: what the archives are, for `storage_errors`."""

    def __init__(self, folder: Path, param: str = "adapter") -> None:
        self._folder, self._param = folder, param
        self._lock_file = folder.with_name(f"{folder.name}.lock")
        if folder.is_dir():
            with suppress(OSError), file_lock(self._lock_file):
                self._delete_abandoned()

    async def receive(self, archive: AsyncIterable[bytes]) -> Upload | None:
        """Write an archive to a file, which the caller deletes. Returns None for an empty archive.

        Raises `StorageFull`, `StorageUnavailable`, and what `archive` raises; then no file is left.
        """
        upload: Upload | None = None
        try:
            async for piece in in_pieces(archive):
                with storage_errors(self._param):
                    if upload is None:
                        upload = await self._create_in_thread()
                    await asyncio.to_thread(upload.append, piece)
        except BaseException:
            if upload:
                upload.delete()
            raise
        return upload

    async def _create_in_thread(self) -> Upload:
        """Create an empty file. If the caller is cancelled meanwhile, the file is deleted once it exists."""
        creation = asyncio.ensure_future(asyncio.to_thread(self._create))
        try:
            return await asyncio.shield(creation)
        except asyncio.CancelledError:
            creation.add_done_callback(_delete_created)
            raise

    def _create(self) -> Upload:
        self._folder.mkdir(parents=True, exist_ok=True)
        with file_lock(self._lock_file):  # no other process may find the file before it is locked
            self._delete_abandoned()
            return Upload(self._folder)

    def _delete_abandoned(self) -> None:
        """Delete uploads whose processes have ended, and no other file. Called with the lock held."""
        for path in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            with suppress(OSError), file_lock(path, wait=False):
                path.unlink()


def _delete_created(creation: asyncio.Future[Upload]) -> None:
    if not creation.cancelled() and not creation.exception():
        creation.result().delete()


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
