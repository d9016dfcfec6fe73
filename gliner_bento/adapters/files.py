"""What the disk tier asks of a file system: locks that end with their process, writes that last, failures told."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gliner_bento.errors import InternalError, StorageFull

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 2**20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def held(lock_file: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a file, made if need be, among all processes and threads.

    wait: for others that hold it; else that raises `BlockingIOError`.
    """
    with lock_file.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk itself."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def told() -> Iterator[None]:
    """A disk that is full, or may not be written to, as an error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("adapter: the server's disk has no room for it", param="adapter") from error
        if error.errno in _FORBIDDEN:
            logger.exception("adapters cannot be stored")
            raise InternalError("the server may not write where it keeps adapters; its log has the details") from error
        raise
