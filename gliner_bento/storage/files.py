"""Files that processes share: locks that end with their process, durable writes, names, checksums. Also finds out
whether a process is alive."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK_BYTES = 2**20
_MAX_STEM_BYTES, _CUT_CHARS = 200, 40


@contextmanager
def file_lock(lock_file: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a file among all processes and threads; creates it if it does not exist.

    wait: wait until the lock is free; False: raise `BlockingIOError` if it is not.
    """
    with lock_file.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def side_file(path: Path, suffix: str) -> Path:
    """A file beside another one: PATH.suffix. The name of a file with a long name is cut, and gets a digest: file
    systems allow 255 bytes. suffix: at most 50 bytes."""
    return path.with_name(f"{side_stem(path).name}.{suffix}")


def side_stem(path: Path) -> Path:
    """What the paths of all side files of a file begin with."""
    name = os.fsencode(path.name)
    if len(name) <= _MAX_STEM_BYTES:
        return path
    return path.with_name(f"{path.name[:_CUT_CHARS]}-{hashlib.sha256(name).hexdigest()[:16]}")


def in_cache(path: Path) -> Path:
    """The path with the user's folder for `~`; a leading `~/.cache` is replaced by `$XDG_CACHE_HOME` if it is set."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache and path.parts[:2] == ("~", ".cache"):
        path = Path(cache, *path.parts[2:])
    return path.expanduser()


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def is_alive(pid: int) -> bool:
    """Whether a process of this user exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
