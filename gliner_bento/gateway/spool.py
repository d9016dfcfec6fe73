"""A body that is too large for memory: kept in a file that nobody else sees, and read again piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import tempfile
from collections.abc import AsyncIterable, AsyncIterator

from gliner_bento.errors import StorageFull

PIECE_BYTES = 2**20


@contextlib.asynccontextmanager
async def spooled(body: AsyncIterable[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Wait for all of `body`; its content in pieces of a MiB, for as long as the block lasts. Raises `StorageFull`."""
    with tempfile.SpooledTemporaryFile(PIECE_BYTES) as file:
        try:
            async for chunk in body:
                await asyncio.to_thread(file.write, chunk)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise StorageFull("the server has no room for the body") from None
        file.seek(0)

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece

        yield pieces()
