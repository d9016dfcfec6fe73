"""Models that were uploaded as archives: each is unpacked into a folder of its own, for all runners of the server."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import weakref
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp

from gliner_bento.adapters.storage_errors import storage_errors
from gliner_bento.errors import ModelFailed, TooLarge
from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.storage.archives import PICKLES, ArchiveError, ArchiveTooLarge, files_of, shown

_MAX_ENTRIES = 1024
_BAD_PATH = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ}
"""Errors of creating a file that are the fault of its path in the archive."""


class ModelArchives:
    """Unpacks models into subfolders of `folder`, or of a temporary folder if `folder` is None. max_bytes: maximum size
    of a model's files."""

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        self._given_folder, self._max_bytes = folder, max_bytes

    @cached_property
    def _folder(self) -> Path:
        if self._given_folder:
            return self._given_folder
        temporary = Path(mkdtemp(prefix="gliner-bento-"))
        weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        return temporary

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._folder / "uploads", "model")

    def find(self, name: str) -> Path | None:
        """The folder with the files of an uploaded checkpoint; None without an upload. If the archive contains only a
        folder, this is that folder."""
        folder = self._folder_of(name)
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
            await asyncio.to_thread(self._unpack, upload.path, self._folder_of(name))
        except BaseException:
            await self.delete(name)
            raise
        finally:
            upload.delete()

    async def delete(self, name: str) -> None:
        """Delete the folder of a model, if it has one."""
        await asyncio.to_thread(shutil.rmtree, self._folder_of(name), ignore_errors=True)

    def _folder_of(self, name: str) -> Path:
        return self._folder / f"model-{name}"

    def _unpack(self, archive: Path, into: Path) -> None:
        shutil.rmtree(into, ignore_errors=True)  # left by a process that was killed
        pickled = None
        try:
            with storage_errors("model"):
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
