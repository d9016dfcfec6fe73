"""The files of an input, and their formats by suffix."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gliner_bento.documents.base import SUFFIXES as DOCUMENT_SUFFIXES
from gliner_bento.documents.base import install_documents
from gliner_bento.errors import StartupError

TEXT_SUFFIXES = (".txt", ".md")
SUFFIXES = {
    **dict.fromkeys(TEXT_SUFFIXES, "text"),
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    **dict.fromkeys(DOCUMENT_SUFFIXES, "document"),
}
UNCOMPRESSED = (".parquet", *DOCUMENT_SUFFIXES)
"""Suffixes of files that are not read as .gz."""
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9]{1,10})?\.[A-Za-z0-9]{1,10}")
READABLE = f"{', '.join(SUFFIXES)} (the first six also as .gz)"
_SYSTEM_FILES = frozenset({".ds_store", ".localized", "thumbs.db", "ehthumbs.db", "desktop.ini"})
"""Files that operating systems put into folders, in lower case."""
_HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Source:
    """An input file. name: the path that was given, or the path below the folder that was given.

    kind: a value of `SUFFIXES`. offset: byte of a JSONL file at which reading starts.
    """

    path: Path
    name: str
    kind: str
    offset: int = 0

    @property
    def gzip(self) -> bool:
        """Whether it is compressed."""
        return self.path.suffix.lower() == ".gz"

    @property
    def shown(self) -> str:
        """The path in messages and results, which are UTF-8."""
        return shown(self.path)


def shown(name: str | Path) -> str:
    """A name of a file as Unicode: bytes that are not UTF-8 are written as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def sources(
    inputs: Sequence[str],
    leave_out: Collection[Path] = (),
    skip: Callable[[str], None] = lambda _path: None,
    unreadable: Callable[[str], None] | None = None,
) -> Iterator[Source]:
    """The files of all inputs; those of a folder in order of their names. Raises `StartupError`.

    leave_out: own paths of the caller, not read in folders; for each such PATH, the paths PATH.* are not read either.
    skip: called with each other path in folders that is not read: unknown formats, documents without the extra
        `documents`, hidden files, linked folders, devices; not with files that operating systems put there.
    unreadable: called with each folder inside that cannot be read; if it is None, such a folder is an error.
    """
    own = [os.path.realpath(name) for name in leave_out]
    for given in inputs:
        path = Path(given)
        if path.is_dir():
            yield from _in_folder(path, own, skip, unreadable)
        elif not path.exists():
            raise StartupError(f"{given}: no such file or folder")
        elif source := _source(path, given):
            if source.kind == "document" and (hint := install_documents()):
                raise StartupError(f"{given}: {hint}")
            yield source
        else:
            raise StartupError(f"{given}: must be a file, one of {READABLE}")


def refuse_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise `StartupError` for an output that is the same file as an input or as another output."""
    taken = {identity: "is an input" for path in inputs for identity in _identities(path)}
    for path in outputs:
        if reasons := [taken[identity] for identity in _identities(path) if identity in taken]:
            raise StartupError(f"{path}: {reasons[0]}; choose another output")
        taken[os.path.realpath(path)] = "would be written twice"


def refuse_devices(outputs: Iterable[Path]) -> None:
    """Raise `StartupError` for an output that is a device, a pipe or a socket."""
    for path in outputs:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise StartupError(f"{path}: is a device, a pipe or a socket; choose another output")


def _identities(path: Path) -> list[str | tuple[int, int]]:
    """The resolved path and, if the file exists, its device and inode, which hard links share."""
    try:
        status = path.stat()
    except OSError:
        return [os.path.realpath(path)]
    return [os.path.realpath(path), (status.st_dev, status.st_ino)]


def text_column(source: Source, column: str) -> str:
    """The column with the text: `column`; for text files and documents always `text`."""
    return "text" if source.kind in ("text", "document") else column


def delimiter_of(source: Source) -> str:
    """The delimiter of a CSV or TSV file."""
    return "\t" if ".tsv" in map(str.lower, source.path.suffixes) else ","


def digest(files: Iterator[Source]) -> str:
    """A hash of paths, sizes and modification times."""
    hashed = hashlib.sha256()
    for source in files:
        state = source.path.stat()
        hashed.update(f"{source.path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return hashed.hexdigest()


def left_out(skipped: Iterable[str]) -> dict[str, int]:
    """The numbers of paths that were skipped, by what they are: a suffix, or a word such as `hidden`. The most frequent
    first."""
    return dict(Counter(map(_kind, skipped)).most_common())


def left_out_line(counts: Mapping[str, int], readable: str = READABLE) -> str:
    """The message for what `left_out` counts."""
    line = f"left out: {', '.join(f'{number} {kind}' for kind, number in counts.items())}; readable: {readable}"
    hint = install_documents() if any(kind in DOCUMENT_SUFFIXES for kind in counts) else ""
    return f"{line}; {hint}" if hint else line


def lacks_data(counts: Mapping[str, int]) -> bool:
    """Whether `left_out` counts something that may be data: who hides a file does not expect it to be read."""
    return any(kind != _HIDDEN for kind in counts)


def _kind(path: str) -> str:
    name = os.path.basename(path)
    if _is_hidden(name):
        return _HIDDEN
    if os.path.isdir(path):
        return "linked folder"
    if not os.path.isfile(path):
        return "not a file"
    root, suffix = os.path.splitext(name.lower())
    if suffix == ".gz":
        suffix = os.path.splitext(root)[1] + suffix
    return suffix if _SUFFIX.fullmatch(suffix) else "without a suffix"


def _in_folder(
    folder: Path, own: Sequence[str], skip: Callable[[str], None], unreadable: Callable[[str], None] | None
) -> Iterator[Source]:
    def fail(error: OSError) -> None:
        if unreadable is None:
            raise StartupError(f"{error.filename}: {error.strerror}")
        unreadable(str(error.filename))

    for root, folders, files in os.walk(folder, onerror=fail):
        real = os.path.realpath(root)
        folders[:] = sorted(name for name in folders if not _is_own(real, name, own))
        for name in [*folders]:
            path = os.path.join(root, name)
            if _is_hidden(name) or os.path.islink(path):
                folders.remove(name)  # `os.walk` visits only the others
                skip(path)
        for name in sorted(files):
            if name.lower() not in _SYSTEM_FILES and not _is_own(real, name, own):
                file = Path(root, name)
                source = None if _is_hidden(name) else _source(file, file.relative_to(folder).as_posix())
                if source and not (source.kind == "document" and install_documents()):
                    yield source
                else:
                    skip(str(file))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"  # a folder in archives of macOS


def _is_own(folder: str, name: str, own: Sequence[str]) -> bool:
    path = os.path.join(folder, name)
    return any(path == known or path.startswith(f"{known}.") for known in own)


def _source(path: Path, name: str) -> Source | None:
    if not os.path.isfile(path):  # opening a FIFO would wait for a writer
        return None
    gzip = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if gzip else path).suffix.lower()
    kind = SUFFIXES.get(suffix)
    return None if kind is None or (gzip and suffix in UNCOMPRESSED) else Source(path, name, kind)
