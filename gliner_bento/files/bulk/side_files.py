"""The files beside the output of a bulk job: their names, the lock, and whether this command has made them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gliner_bento.errors import StartupError
from gliner_bento.storage.files import side_file

SUFFIXES = ("checkpoint", "errors.jsonl", "unfinished", "merged", "checkpoint.new", "lock")
_MARK = b"gliner-bento bulk is writing\n"
_ERROR = b'{"place":'  # begins a line of errors.jsonl


@contextmanager
def locked(output: Path) -> Iterator[bool]:
    """Lock an output among processes, with a file that is removed at the end. Raises `StartupError`.

    The result is whether a killed run has left its lock.
    """
    path = side_file(output, "lock")
    left = False
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        if not path.is_file():
            raise _foreign(path) from None
        left, handle = True, os.open(path, os.O_RDWR)
    with open(handle, "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"{output}: another run is writing it") from None
        if left and file.read(len(_MARK) + 1) != _MARK:
            raise _foreign(path)
        if not left:
            file.write(_MARK)
        try:
            yield left
        finally:
            path.unlink(missing_ok=True)


def refuse_foreign(output: Path, *, left: bool) -> None:
    """Raise `StartupError` for a side file that no run of this command has made. For a job without a checkpoint. left:
    see `locked`."""
    for suffix in SUFFIXES:
        path = side_file(output, suffix)
        is_own = suffix == "lock" or (suffix == "checkpoint.new" and left)
        is_own = is_own or (suffix == "errors.jsonl" and _has_errors(path))  # of a completed run
        if path.exists() and not is_own:
            raise _foreign(path)


def _has_errors(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return path.is_file() and file.read(len(_ERROR)) == _ERROR
    return False


def _foreign(path: Path) -> StartupError:
    return StartupError(f"{path}: exists, and is not of this command; choose another output")
