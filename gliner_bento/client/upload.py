"""Reads archives while they are uploaded; a folder with an adapter is packed into an archive first."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from gliner_bento.adapter_types import SAVE_AS_SAFETENSORS

_CONFIG_FILE = "adapter_config.json"
_WEIGHTS_FILES = ("adapter_model.safetensors", "adapter_weights.safetensors")
"""File names in PEFT's format, and in gliner2's own format."""
_PICKLED = "adapter_model.bin"
_PIECE_BYTES = 2**20


@contextlib.contextmanager
def opened(path: Path | None) -> Iterator[IO[bytes] | None]:
    """The opened archive at `path`; an adapter's folder is packed into one. None if `path` is None. Raises OSError."""
    if path is None:
        yield None
    elif path.is_dir():
        with tempfile.TemporaryFile() as file:
            with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
                weights = next((name for name in _WEIGHTS_FILES if (path / name).exists()), _WEIGHTS_FILES[0])
                if not (path / weights).exists() and (path / _PICKLED).exists():
                    raise FileNotFoundError(f"{path}: {_PICKLED} is never unpickled; {SAVE_AS_SAFETENSORS}")
                for name in (_CONFIG_FILE, weights):
                    archive.write(path / name, name)
            file.seek(0)
            yield file
    else:
        with path.open("rb") as file:
            yield file


async def pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    """The content of a file in pieces, which are read in a thread."""
    while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
        yield piece
