"""Adapters on their way to the server: a file, or a folder that becomes one, read as it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_PIECE_BYTES = 2**20


@contextlib.contextmanager
def opened(adapter: Path | None) -> Iterator[IO[bytes] | None]:
    """An archive's content, or that of one that holds the adapter of a folder; None for None. Raises OSError."""
    if adapter is None:
        yield None
    elif adapter.is_dir():
        with tempfile.TemporaryFile() as file:
            with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
                for name in ADAPTER_FILES:
                    archive.write(adapter / name, name)
            file.seek(0)
            yield file
    else:
        with adapter.open("rb") as file:
            yield file


async def pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    """The content, without making the event loop wait for the disk."""
    while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
        yield piece
