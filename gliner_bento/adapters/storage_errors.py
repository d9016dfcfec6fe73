"""A disk that is full or must not be written to, as errors with a message."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gliner_bento.errors import InternalError, StorageFull

logger = logging.getLogger(__name__)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


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
