"""Temporary folders that do not outlive a killed process for long: the next process that makes one deletes them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_PREFIX = "gliner-bento-"
_OWNER = ".owner"
"""A file in each folder that the processes lock which use the folder. A lock ends with its process."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, which is deleted at the end. Deletes those of processes that were killed."""
    delete_abandoned(Path(tempfile.gettempdir()), _PREFIX)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name, own_folder(Path(name)):
        yield Path(name)


def own_folder(folder: Path) -> IO[bytes]:
    """Keep a folder from `delete_abandoned` until this process ends or closes what is returned."""
    new = folder / f"{_OWNER}.new"
    owner = new.open("wb")
    fcntl.flock(owner, fcntl.LOCK_SH)
    os.replace(new, folder / _OWNER)  # under its name, it is never without a lock
    return owner


def use_scratch_folder(folder: Path) -> IO[bytes] | None:
    """Keep the folder of another process until this process ends or closes what is returned. None: it is gone."""
    with suppress(OSError):
        owner = (folder / _OWNER).open("rb")
        fcntl.flock(owner, fcntl.LOCK_SH)
        return owner
    return None


def delete_abandoned(parent: Path, prefix: str, kept: Container[str] = ()) -> None:
    """Delete the folders in `parent` whose names begin with `prefix` and whose owners have ended. kept: what may follow
    the prefix in the names of folders that are kept."""
    for path in parent.glob(f"{prefix}*/{_OWNER}"):
        if path.parent.name.removeprefix(prefix) in kept:
            continue
        with suppress(OSError), path.open("rb") as owner:  # OSError: of another user, in use, or deleted meanwhile
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
