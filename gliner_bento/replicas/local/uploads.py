"""Archives while they arrive: a file each, locked by its process, and deleted once that has ended."""

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
    """Files in a folder, which processes may share. param: what they are, in errors."""

    def __init__(self, folder: Path, param: str = "adapter") -> None:
        self._folder, self._param = folder, param
        self._lock_file = folder.with_name(f"{folder.name}.lock")
        if folder.is_dir():
            with suppress(OSError), file_lock(self._lock_file):
                self._delete_abandoned()

    async def receive(self, archive: AsyncIterable[bytes]) -> Upload | None:
        """The file that an archive has been written to, which the caller deletes; None for an empty archive.

        Raises `StorageFull`, `StorageUnavailable`, and what `archive` raises; no file is left then.
        """
        upload: Upload | None = None
        try:
            async for piece in in_pieces(archive):
                with storage_errors(self._param):
                    if upload is None:
                        upload = await self._begun()
                    await asyncio.to_thread(upload.append, piece)
        except BaseException:
            if upload:
                upload.delete()
            raise
        return upload

    async def _begun(self) -> Upload:
        """An empty file, made in a thread. If the caller is cancelled meanwhile, the file is deleted once it exists."""
        beginning = asyncio.ensure_future(asyncio.to_thread(self._begin))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(_delete)
            raise

    def _begin(self) -> Upload:
        self._folder.mkdir(parents=True, exist_ok=True)
        with file_lock(self._lock_file):  # no other process may find the file before it is locked
            self._delete_abandoned()
            return Upload(self._folder)

    def _delete_abandoned(self) -> None:
        """Delete uploads whose processes have ended, and no other file. Called with the lock held."""
        for path in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            with suppress(OSError), file_lock(path, wait=False):
                path.unlink()


def _delete(made: asyncio.Future[Upload]) -> None:
    """Delete an upload whose caller was cancelled."""
    if not made.cancelled() and not made.exception():
        made.result().delete()


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
