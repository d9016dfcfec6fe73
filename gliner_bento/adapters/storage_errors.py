"""Turns system errors of a disk that is full or cannot be written to into errors with a message."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gliner_bento.errors import StorageFull, StorageUnavailable

logger = logging.getLogger(__name__)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNAVAILABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise `StorageFull` for a full disk, `StorageUnavailable` for a disk that cannot be written to."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("adapter: the server's disk is full", param="adapter") from error
        if error.errno in _UNAVAILABLE:
            logger.exception("adapters cannot be stored")
            raise StorageUnavailable(
                "adapter: the server cannot write to disk_cache_dir; its log has the details", param="adapter"
            ) from error
        raise
