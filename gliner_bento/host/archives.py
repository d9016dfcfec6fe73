"""Models that were uploaded as archives: each is unpacked into a folder of its own, for all runners of the server."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import weakref
from collections.abc import Container
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import IO

from gliner_bento.adapters.storage_errors import storage_errors
from gliner_bento.errors import ModelFailed, TooLarge
from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.storage.archives import PICKLES, ArchiveError, ArchiveTooLarge, files_of, shown
from gliner_bento.storage.scratch import delete_abandoned, own_folder, scratch_folder

_MAX_ENTRIES = 1024
_PREFIX = "model-"
_BAD_PATH = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ}
"""Errors of creating a file that are the fault of its path in the archive."""


class ModelArchives:
    """Unpacks models into subfolders of `folder`, or of a temporary folder if `folder` is None. max_bytes: maximum size
    of a model's files. The process that unpacks a model owns its folder until it deletes it; see `own_folder`."""

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        self._given_folder, self._max_bytes = folder, max_bytes
        self._owned: dict[str, IO[bytes]] = {}
        weakref.finalize(self, _close_all, self._owned)

    @cached_property
    def _folder(self) -> Path:
        if self._given_folder:
            return self._given_folder
        stack = ExitStack()
        weakref.finalize(self, stack.close)
        return stack.enter_context(scratch_folder())

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._folder / "uploads", "model")

    def delete_abandoned(self, kept: Container[str]) -> None:
        """Delete what processes left that were killed while a model arrived or was loaded. kept: the names of models
        that were loaded."""
        if self._given_folder and self._given_folder.is_dir():
            _ = self._uploads  # deletes archives that have arrived only in part
            delete_abandoned(self._given_folder, _PREFIX, kept)

    def find(self, name: str) -> Path | None:
        """The folder with the files of an uploaded checkpoint; None without an upload. If the archive contains only a
        folder, this is that folder."""
        folder = self._files_of(name)
        entries = list(folder.iterdir()) if folder.is_dir() else []
        if not entries:
            return None
        return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder

    async def store(self, name: str, archive: Archive) -> None:
        """Receive and unpack an archive. Raises `ModelFailed`, `TooLarge`, `StorageFull` and what `archive` raises;
        then no file is left."""
        upload = await self._uploads.receive(archive)
        if upload is None:
            raise ModelFailed("archive: the body is empty")
        try:
            await asyncio.to_thread(self._unpack, upload.path, name)
        except BaseException:
            await self.delete(name)
            raise
        finally:
            upload.delete()

    async def delete(self, name: str) -> None:
        """Delete the folder of a model, if it has one."""
        await asyncio.to_thread(self._delete, name)

    def _folder_of(self, name: str) -> Path:
        return self._folder / f"{_PREFIX}{name}"

    def _files_of(self, name: str) -> Path:
        return self._folder_of(name) / name  # in messages, it is the name of the checkpoint

    def _delete(self, name: str) -> None:
        shutil.rmtree(self._folder_of(name), ignore_errors=True)
        if owner := self._owned.pop(name, None):
            owner.close()

    def _own(self, name: str) -> None:
        """Make an empty folder for a model, which this process owns."""
        self._delete(name)  # left by a process that was killed
        self._folder_of(name).mkdir(parents=True)
        self._owned[name] = own_folder(self._folder_of(name))

    def _unpack(self, archive: Path, name: str) -> None:
        into, pickled = self._files_of(name), None
        try:
            with storage_errors("model"):
                self._own(name)
                for file in files_of(archive, max_bytes=self._max_bytes, max_entries=_MAX_ENTRIES):
                    target = into / file.path
                    if target.suffix in PICKLES:
                        pickled = file.path.name
                        target = Path(os.devnull)  # pickles are not stored
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as opened:
                        opened.writelines(file.content)
        except ArchiveTooLarge as error:
            raise TooLarge(f"archive: {error} (max_model_bytes)") from error
        except ArchiveError as error:
            raise ModelFailed(f"archive: {error}") from error
        except OSError as error:
            if error.errno in _BAD_PATH:
                raise ModelFailed(f"archive: {shown(file.path)}: {error.strerror}") from error
            raise
        if pickled and not any(path.suffix in (".safetensors", ".onnx") for path in into.rglob("*")):
            raise ModelFailed(f"archive: {shown(pickled)} is never unpickled; save it as safetensors")


def _close_all(owned: dict[str, IO[bytes]]) -> None:
    for owner in owned.values():
        owner.close()
