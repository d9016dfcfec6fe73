"""The files of an input, and their formats by suffix."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gliner_bento.errors import StartupError

TEXT_SUFFIXES = (".txt", ".md")
SUFFIXES = {
    **dict.fromkeys(TEXT_SUFFIXES, "text"),
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
READABLE = f"{', '.join(SUFFIXES)} (all but .parquet also as .gz)"


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
    inputs: Sequence[str], leave_out: Collection[Path] = (), skipped: list[str] | None = None
) -> Iterator[Source]:
    """The files of all inputs; those of a folder in order of their names. Raises `StartupError`, also for a folder
    inside that cannot be read, unless there is `skipped`.

    leave_out: paths that are not read in folders; for each such PATH, the paths PATH.* are not read either.
    skipped: gets all paths in folders that are not read: also unknown formats, hidden files, linked folders, devices.
    """
    left_out = [os.path.realpath(name) for name in leave_out]
    for given in inputs:
        path = Path(given)
        if path.is_dir():
            yield from _in_folder(path, left_out, skipped)
        elif not path.exists():
            raise StartupError(f"{given}: no such file or folder")
        elif source := _source(path, given):
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
    """The column with the text: `column`; for text files always `text`."""
    return "text" if source.kind == "text" else column


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


def _in_folder(folder: Path, left_out: Sequence[str], skipped: list[str] | None) -> Iterator[Source]:
    def unreadable(error: OSError) -> None:
        if skipped is None:
            raise StartupError(f"{error.filename}: {error.strerror}")
        noted.append(str(error.filename))

    noted = [] if skipped is None else skipped
    for root, folders, files in os.walk(folder, onerror=unreadable):
        real = os.path.realpath(root)
        not_read = [
            name for name in folders if os.path.islink(os.path.join(root, name)) or _is_left_out(real, name, left_out)
        ]
        noted.extend(os.path.join(root, name) for name in sorted(not_read))
        folders[:] = sorted(set(folders) - set(not_read))  # `os.walk` visits only these
        for name in sorted(files):
            path = Path(root, name)
            source = None if _is_left_out(real, name, left_out) else _source(path, path.relative_to(folder).as_posix())
            if source:
                yield source
            else:
                noted.append(str(path))


def _is_left_out(folder: str, name: str, left_out: Sequence[str]) -> bool:
    path = os.path.join(folder, name)
    return name.startswith(".") or any(path == known or path.startswith(f"{known}.") for known in left_out)


def _source(path: Path, name: str) -> Source | None:
    if not os.path.isfile(path):  # opening a FIFO would wait for a writer
        return None
    gzip = path.suffix.lower() == ".gz"
    kind = SUFFIXES.get((path.with_suffix("") if gzip else path).suffix.lower())
    return None if kind is None or (gzip and kind == "parquet") else Source(path, name, kind)
