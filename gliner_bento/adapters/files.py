"""File operations of the disk tier: locks that end with their process, durable writes, errors with a message."""

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
def file_lock(lock_file: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a file, created if it does not exist, among all processes and threads.

    wait: until it is free; False: raise `BlockingIOError` if it is not.
    """
    with lock_file.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
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
def storage_errors() -> Iterator[None]:
    """Raise `StorageFull` for a full disk, `InternalError` for one that must not be written to."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("adapter: the server's disk is full", param="adapter") from error
        if error.errno in _FORBIDDEN:
            logger.exception("adapters cannot be stored")
            raise InternalError("the server cannot write to its adapter cache; its log has the details") from error
        raise
