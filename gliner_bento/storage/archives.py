"""Reads untrusted zip and tar archives, within limits. Writes nothing."""

from __future__ import annotations

import gzip
import io
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")
"""Suffixes of archives' names."""

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
"""Suffixes of pickle files: to load them may run code."""

_MAX_RATIO = 200  # of the unpacked size to the archive's size
_ANY_RATIO_BYTES = 16 * 2**20  # up to this unpacked size, the ratio is not limited
_MAX_HEADER_BYTES = 256 * 2**10  # zip's directory, or all of tar's headers and padding
_MAX_DEPTH = 32  # folders inside each other
_CHUNK_BYTES = 64 * 2**10

_T = TypeVar("_T")


class ArchiveError(Exception):
    """The archive cannot be read; the message says why, in one line."""


class ArchiveTooLarge(ArchiveError):
    """The archive exceeds a limit."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A plain file of an archive. path: relative, and inside the folder that it is unpacked into."""

    path: PurePosixPath
    content: Iterator[bytes]


def files_of(archive: Path, *, max_bytes: int, max_entries: int) -> Iterator[ArchivedFile]:
    """The files of a zip or a tar, gzipped or not. Read the content of each before the next one.

    max_bytes: limit on the unpacked bytes of all files read. max_entries: limit on files and folders together.

    Raises `ArchiveTooLarge` beyond these limits, or if the files unpack to more than 16 MiB and more than 200 times
    the archive's own size. Raises `ArchiveError` for links, devices, paths that lead outside, a path that occurs twice,
    and a file in any other format.
    """
    budget = _Budget(max_bytes, archive.stat().st_size)
    seen: set[PurePosixPath] = set()
    with _Reader(io.FileIO(archive)) as file:
        for number, member in enumerate(_checked(_members(file)), 1):
            if number > max_entries:
                raise ArchiveTooLarge(f"the archive has more than {max_entries} entries")
            path = _path(member.name)
            if member.content is None:
                continue
            if path in seen:
                raise ArchiveError(f"the archive holds {shown(path)} twice")
            seen.add(path)
            yield ArchivedFile(path, budget.charge(_checked(member.content)))


def shown(name: object) -> str:
    """An untrusted name as a message shows it: quoted, on one line, shortened."""
    text = str(name)
    return repr(text if len(text) <= 160 else f"{text[:120]}...{text[-30:]}")


@dataclass(frozen=True, slots=True)
class _Member:
    """An entry of an archive. content: None for a folder."""

    name: str
    content: Iterator[bytes] | None


class _Budget:
    """Counts how many more bytes an archive may unpack to."""

    def __init__(self, max_bytes: int, archive_bytes: int) -> None:
        max_by_ratio = max(_ANY_RATIO_BYTES, _MAX_RATIO * archive_bytes)
        self._left = min(max_bytes, max_by_ratio)
        self._limit = f"{max_bytes} bytes" if max_bytes <= max_by_ratio else f"{_MAX_RATIO} times its size"

    def charge(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """`chunks`; raises `ArchiveTooLarge` when they exceed the budget."""
        for chunk in chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise ArchiveTooLarge(f"the archive unpacks to more than {self._limit}")
            yield chunk


class _Reader(io.BufferedReader):
    """The archive's file. Limits the size of a read, because zipfile reads the directory in one call, in the size that
    the archive claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_HEADER_BYTES:
            raise ArchiveError("the archive's directory is too large")
        return super().read(size)


class _TarStream:
    """The file that tarfile reads from, forward only. `read` is for headers and padding. They have a limit, because
    tarfile reads a header of any size into memory. `content` is for the content of files."""

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
            raise ArchiveError("the archive's headers are too large, or out of order")
        return self.content(size)

    def content(self, size: int) -> bytes:
        data = self._file.read(size)
        self._position += len(data)
        return data


def _members(file: _Reader) -> Iterator[_Member]:
    """The entries of the archive, whose format is recognized by its first bytes, not by its name."""
    start = file.peek(512)[:512]
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_members(file)
    if start.startswith(b"\x1f\x8b"):
        return _tar_members(gzip.GzipFile(fileobj=file))
    if start[257:262] == b"ustar":
        return _tar_members(file)
    raise ArchiveError("the archive is neither zip nor tar, gzipped or not")


def _zip_members(file: _Reader) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = info.orig_filename
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.flag_bits & 0x41:  # encryption, strong encryption
                raise ArchiveError("the archive is encrypted")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _not_plain(name)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ArchiveError("the archive is compressed by a method other than deflate")
            yield _Member(name, None if name.endswith("/") else _zip_content(archive, info))


def _zip_content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _tar_members(file: io.BufferedIOBase) -> Iterator[_Member]:
    stream = _TarStream(file)
    with tarfile.TarFile(fileobj=cast(Any, stream)) as archive:
        while (member := archive.next()) is not None:
            if not (member.isfile() or member.isdir()) or member.issparse():
                raise _not_plain(member.name)
            yield _Member(member.name, None if member.isdir() else _tar_content(stream, member.size))
    while stream.read(tarfile.BLOCKSIZE):  # to the end, where gzip has its checksum
        pass


def _tar_content(stream: _TarStream, size: int) -> Iterator[bytes]:
    while size > 0:
        chunk = stream.content(min(size, _CHUNK_BYTES))
        if not chunk:
            raise ArchiveError("the archive is truncated")
        size -= len(chunk)
        yield chunk


def _not_plain(name: str) -> ArchiveError:
    return ArchiveError(f"the archive's {shown(name)} is neither a plain file nor a folder")


def _path(name: str) -> PurePosixPath:
    """The entry's path inside the archive; raises ArchiveError if it may lead outside."""
    path = PurePosixPath(name)
    if len(path.parts) > _MAX_DEPTH:
        raise ArchiveError(f"the archive names {shown(name)}, which is in more than {_MAX_DEPTH} folders")
    if "\0" in name or "\\" in name or path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", name):
        raise ArchiveError(f"the archive names {shown(name)}, which is not a path inside it")
    return path


def _checked(items: Iterator[_T]) -> Iterator[_T]:
    """`items`; an error while reading them is raised as `ArchiveError`."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except ArchiveError:
            raise
        except Exception as error:
            raise ArchiveError("the archive is damaged") from error
        yield item
