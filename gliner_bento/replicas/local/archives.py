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
_NO_FILE_NAME = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ}


class ModelArchives:
    """Folders of models below `folder`; None: a temporary one, made for the first model. max_bytes: limit on a model's
    files."""

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        self._given, self._max_bytes = folder, max_bytes

    @cached_property
    def _folder(self) -> Path:
        if self._given:
            return self._given
        made = Path(mkdtemp(prefix="gliner-bento-"))
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return made

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._folder / "uploads", "model")

    def find(self, name: str) -> Path | None:
        """The folder with the checkpoint of a model, if it was uploaded: its archive may hold it in a folder."""
        folder = self._of(name)
        inside = list(folder.iterdir()) if folder.is_dir() else []
        if not inside:
            return None
        return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder

    async def store(self, name: str, archive: Archive) -> None:
        """Unpack an archive as it arrives. Raises `ModelFailed`, `TooLarge`, `StorageFull` and what `archive` raises;
        nothing is left then."""
        upload = await self._uploads.receive(archive)
        if upload is None:
            raise ModelFailed("archive: the body is empty")
        try:
            await asyncio.to_thread(self._unpack, upload.path, self._of(name))
        except BaseException:
            await self.delete(name)
            raise
        finally:
            upload.delete()

    async def delete(self, name: str) -> None:
        """Delete the folder of a model, if it has one."""
        await asyncio.to_thread(shutil.rmtree, self._of(name), ignore_errors=True)

    def _of(self, name: str) -> Path:
        return self._folder / f"model-{name}"

    def _unpack(self, archive: Path, into: Path) -> None:
        shutil.rmtree(into, ignore_errors=True)  # of a process that was killed
        pickled = None
        try:
            with storage_errors("model"):
                for file in files_of(archive, max_bytes=self._max_bytes, max_entries=_MAX_ENTRIES):
                    target = into / file.path
                    if target.suffix in PICKLES:
                        pickled = file.path.name
                        target = Path(os.devnull)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as opened:
                        opened.writelines(file.content)
        except ArchiveTooLarge as error:
            raise TooLarge(f"archive: {error} (max_model_bytes)") from error
        except ArchiveError as error:
            raise ModelFailed(f"archive: {error}") from error
        except OSError as error:
            if error.errno in _NO_FILE_NAME:
                raise ModelFailed(f"archive: {shown(file.path)}: {error.strerror}") from error
            raise
        if pickled and not any(one.suffix in (".safetensors", ".onnx") for one in into.rglob("*")):
            raise ModelFailed(f"archive: {shown(pickled)} is never unpickled; save it as safetensors")
