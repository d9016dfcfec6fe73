"""Uploads: an archive, or an adapter's folder that is packed into one, read while it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

_CONFIG_FILE = "adapter_config.json"
_WEIGHTS_FILES = ("adapter_model.safetensors", "adapter_weights.safetensors")
"""File names of PEFT's format, and of gliner2's own."""
_PIECE_BYTES = 2**20


@contextlib.contextmanager
def opened(adapter: Path | None) -> Iterator[IO[bytes] | None]:
    """The open archive; a folder is packed into a temporary one first. None if `adapter` is None. Raises OSError."""
    if adapter is None:
        yield None
    elif adapter.is_dir():
        with tempfile.TemporaryFile() as file:
            with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
                weights = [name for name in _WEIGHTS_FILES if (adapter / name).exists()]
                for name in (_CONFIG_FILE, (weights or _WEIGHTS_FILES)[0]):
                    archive.write(adapter / name, name)
            file.seek(0)
            yield file
    else:
        with adapter.open("rb") as file:
            yield file


async def pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    """The content in pieces, read in a thread."""
    while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
        yield piece
