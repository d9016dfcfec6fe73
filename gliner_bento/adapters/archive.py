"""The two files of an adapter, and archives that hold them, unpacked within limits that do not trust the archive.

Only the two files are written, under fixed names. The other entries are skipped, but count towards the limits.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from gliner_bento.errors import AdapterInvalid, GLiNERBentoError, TooLarge

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
FILES = (CONFIG_FILE, WEIGHTS_FILE)
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")

_MAX_ENTRIES = 64
_MAX_RATIO = 200
_ANY_RATIO_BYTES = 16 * 2**20  # up to this size, the ratio is not limited
_MAX_HEADER_BYTES = 256 * 2**10  # zip's directory, or all of tar's headers and padding
_CHUNK_BYTES = 64 * 2**10

_T = TypeVar("_T")


def invalid(problem: str) -> AdapterInvalid:
    """The error for an adapter with this problem."""
    return AdapterInvalid(f"adapter: {problem}", param="adapter")


def shown(name: object) -> str:
    """An untrusted name as a message shows it: quoted, on one line, shortened."""
    text = str(name)
    return repr(text if len(text) <= 160 else f"{text[:120]}...{text[-30:]}")


def check_complete(names: Collection[str]) -> None:
    """Raises `AdapterInvalid` if one of the two files is not among `names`."""
    if CONFIG_FILE not in names:
        raise invalid(f"there is no {CONFIG_FILE}")
    if WEIGHTS_FILE not in names:
        pickled = min((name for name in names if name.endswith(_PICKLES)), default=None)
        never = f", and {shown(pickled)} is never unpickled; save it as safetensors" if pickled else ""
        raise invalid(f"there is no {WEIGHTS_FILE}{never}")


def unpack(archive: Path, into: Path, *, max_bytes: int) -> None:
    """Write the adapter's two files, from a zip or a tar, gzipped or not, into the folder `into`.

    They may be at the top of the archive or in one folder. After an error, `into` may hold incomplete files.

    max_bytes: of all files of the archive, unpacked.

    Raises `AdapterInvalid` for anything else, and `TooLarge` beyond `max_bytes`, 64 entries, or 200 times the
    archive's own size.
    """
    budget = _Budget(max_bytes, archive.stat().st_size)
    seen: set[PurePosixPath] = set()
    with _Reader(io.FileIO(archive)) as file:
        for number, entry in enumerate(_checked(_entries(file)), 1):
            if number > _MAX_ENTRIES:
                raise TooLarge(f"adapter: the archive has more than {_MAX_ENTRIES} entries", param="adapter")
            path = _path(entry.name)
            if entry.content is None:
                continue
            if path in seen:
                raise invalid(f"the archive holds {shown(path)} twice")
            seen.add(path)
            wanted = path.name in FILES
            if wanted:
                _check_place(path, seen)
            with (into / path.name).open("xb") if wanted else open(os.devnull, "wb") as target:
                target.writelines(budget.charge(_checked(entry.content)))
    check_complete({path.name for path in seen})


class _Budget:
    """How many more bytes an archive may unpack to."""

    def __init__(self, max_bytes: int, archive_bytes: int) -> None:
        by_size = max(_ANY_RATIO_BYTES, _MAX_RATIO * archive_bytes)
        self._left = min(max_bytes, by_size)
        self._limit = f"{max_bytes} bytes" if max_bytes <= by_size else f"{_MAX_RATIO} times its size"

    def charge(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """`chunks`; raises `TooLarge` when they exceed the budget."""
        for chunk in chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise TooLarge(f"adapter: the archive unpacks to more than {self._limit}", param="adapter")
            yield chunk


@dataclass(frozen=True, slots=True)
class _Entry:
    """A plain file of an archive, or a folder (without content). Read the content before the next entry."""

    name: str
    content: Iterator[bytes] | None


class _Reader(io.BufferedReader):
    """The archive's file. zipfile reads the directory in one call, of whatever size the archive claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_HEADER_BYTES:
            raise invalid("the archive's directory is too large")
        return super().read(size)


class _TarStream:
    """The file that tarfile reads from, forward only. `read` is for headers and padding and has a limit, because
    tarfile reads a header of any size into memory; `content` is for the content of files."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self._position = 0
        self._left = _MAX_HEADER_BYTES

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        self.read(position - self._position)

    def read(self, size: int) -> bytes:
        self._left -= size
        if size < 0 or self._left < 0:
            raise invalid("the archive's headers are too large, or out of order")
        return self.content(size)

    def content(self, size: int) -> bytes:
        data = self._file.read(size)
        self._position += len(data)
        return data


def _entries(file: _Reader) -> Iterator[_Entry]:
    """By the file's first bytes, not by its name."""
    start = file.peek(512)[:512]
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _of_zip(file)
    if start.startswith(b"\x1f\x8b"):
        return _of_tar(gzip.GzipFile(fileobj=file))
    if start[257:262] == b"ustar":
        return _of_tar(file)
    raise invalid("the archive is neither zip nor tar, gzipped or not")


def _of_zip(file: _Reader) -> Iterator[_Entry]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = info.orig_filename
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.flag_bits & 0x41:
                raise invalid("the archive is encrypted")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _not_plain(name)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise invalid("the archive is compressed by a method other than deflate")
            yield _Entry(name, None if name.endswith("/") else _of_zipped(archive, info))


def _of_zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _of_tar(file: io.BufferedIOBase) -> Iterator[_Entry]:
    stream = _TarStream(file)
    with tarfile.TarFile(fileobj=cast(Any, stream)) as archive:
        while (member := archive.next()) is not None:
            if not (member.isfile() or member.isdir()) or member.issparse():
                raise _not_plain(member.name)
            yield _Entry(member.name, None if member.isdir() else _of_member(stream, member.size))
    while stream.read(tarfile.BLOCKSIZE):  # to the end, where gzip has its checksum
        pass


def _of_member(stream: _TarStream, size: int) -> Iterator[bytes]:
    while size > 0:
        chunk = stream.content(min(size, _CHUNK_BYTES))
        if not chunk:
            raise invalid("the archive is truncated")
        size -= len(chunk)
        yield chunk


def _not_plain(name: str) -> AdapterInvalid:
    return invalid(f"the archive's {shown(name)} is neither a plain file nor a folder")


def _path(name: str) -> PurePosixPath:
    """The entry's path inside the archive; raises `AdapterInvalid` if it may lead outside."""
    path = PurePosixPath(name)
    if "\0" in name or "\\" in name or path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", name):
        raise invalid(f"the archive names {shown(name)}, which is not a path inside it")
    return path


def _check_place(path: PurePosixPath, seen: set[PurePosixPath]) -> None:
    """Raises `AdapterInvalid` unless both files are at the top or in the same folder."""
    if len(path.parts) > 2:
        raise invalid(f"the archive holds {shown(path)}; the files may be in one folder, not deeper")
    if any(other.name in FILES and other.parent != path.parent for other in seen):
        raise invalid("the archive holds more than one adapter")


def _checked(items: Iterator[_T]) -> Iterator[_T]:
    """`items`; any error in reading them is raised as `AdapterInvalid`."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except GLiNERBentoError:
            raise
        except Exception as error:
            raise invalid("the archive is damaged") from error
        yield item
