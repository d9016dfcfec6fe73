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
_FOLDERS = {"adapter": "disk_cache_dir", "model": "$TMPDIR"}


@contextmanager
def storage_errors(param: str = "adapter") -> Iterator[None]:
    """Raise `StorageFull` for a full disk, `StorageUnavailable` for a disk that cannot be written to. param: what is
    stored."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"{param}: the server's disk is full", param=param) from error
        if error.errno in _UNAVAILABLE:
            logger.exception("%ss cannot be stored", param)
            raise StorageUnavailable(
                f"{param}: the server cannot write to {_FOLDERS[param]}; its log has the details", param=param
            ) from error
        raise
