"""Unpacks a checkpoint's archive (.zip, .tar.gz) once, into a folder that processes share.

    conversion_cache_dir/archives/<key of the path>-<key of size and time>    unpacked as .<name> and renamed
    conversion_cache_dir/archives/lock                                        held while an archive is unpacked

Imports no torch.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from gliner_bento.engine.checkpoint.find import ModelError, config_of, is_file
from gliner_bento.storage.archives import SUFFIXES, ArchiveError, files_of
from gliner_bento.storage.files import file_lock

_MAX_ENTRIES = 1000


def is_archive(path: Path) -> bool:
    """Whether `path` is a file with the name of an archive."""
    return path.name.endswith(SUFFIXES) and is_file(path)


def name_of(archive: Path) -> str:
    """The model's name: the name of the file without its suffix."""
    suffix = next(suffix for suffix in SUFFIXES if archive.name.endswith(suffix))
    return archive.name.removesuffix(suffix)


def unpacked(archive: Path, cache: Path) -> Path:
    """Unpack an archive. Returns the checkpoint's folder, the archive's top or its only folder. Raises ModelError."""
    try:
        folder = _unpacked(archive.resolve(), cache / "archives")
        inside = list(folder.iterdir())
    except ArchiveError as error:
        raise ModelError(f"{str(archive)!r} is not unpacked: {error}") from error
    except OSError as error:
        raise ModelError(f"{str(archive)!r} cannot be unpacked in {cache}: {error.strerror}") from error
    if config_of(folder) is None and len(inside) == 1 and inside[0].is_dir():
        return inside[0]
    return folder


def _unpacked(archive: Path, cache: Path) -> Path:
    """The folder with the archive's content. Deletes the content of an earlier archive at the same path."""
    status = archive.stat()
    path_key, content_key = _key(archive), _key((status.st_size, status.st_mtime_ns))
    target = cache / f"{path_key}-{content_key}"
    cache.mkdir(parents=True, exist_ok=True)
    with file_lock(cache / "lock"):
        if target.is_dir():
            return target
        for stale in cache.glob(f"*{path_key}-*"):  # also a temporary folder, which begins with a dot
            shutil.rmtree(stale)
        temporary = cache / f".{target.name}"
        try:
            _write(archive, temporary)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _write(archive: Path, folder: Path) -> None:
    """Write all files of an archive. Raises ArchiveError, also if they have more bytes than the disk has left."""
    folder.mkdir()
    free_bytes = shutil.disk_usage(folder).free
    for file in files_of(archive, max_bytes=free_bytes, max_entries=_MAX_ENTRIES):
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            target.writelines(file.content)


def _key(value: object) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()[:16]
