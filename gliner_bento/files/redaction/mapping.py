"""The mapping: a file with the original of each replacement, as lines of JSON.

A line of its own ends the lines of each copy. All of them are on the disk before the copy gets its name, so that no
copy, whatever ends the run, lacks its originals.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gliner_bento.privacy.redact import ReplacedText
from gliner_bento.storage.files import sha256, sync

Entry = dict[str, Any]
"""A line of the mapping: a `ReplacedText`, and where it is."""


def replaced_text(entry: Entry) -> ReplacedText:
    """The replacement of an entry. Raises KeyError, TypeError and ValueError."""
    start, *texts = (entry[name] for name in ("start", "label", "replacement", "text"))
    if not isinstance(start, int) or not all(isinstance(text, str) for text in texts):
        raise ValueError("not an entry of a mapping")
    return ReplacedText(start, *texts)


class MappingWriter:
    """Writes the lines of copies, which may alternate."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file, self._path = file, path
        self._replacements: Counter[str] = Counter()  # by name of a copy that is not complete
        self._is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)

    def add(self, name: str, entry: Entry) -> None:
        """Write a replacement of the copy `name`. Raises OSError."""
        self._write({"file": name, **entry})
        self._replacements[name] += 1

    def complete(self, name: str, copy: Path) -> None:
        """End the lines of a copy, and sync all lines to the disk. Raises OSError."""
        self._write({"file": name, "replacements": self._replacements.pop(name, 0), "sha256": sha256(copy)})
        with _naming(self._path):
            self._file.flush()
            if self._is_regular:
                os.fsync(self._file.fileno())

    def _write(self, line: Entry) -> None:
        with _naming(self._path):
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file in errors of the system that name none."""
    try:
        yield
    except OSError as error:
        if error.filename or not error.strerror:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextlib.contextmanager
def new_mapping(path: Path) -> Iterator[MappingWriter]:
    """A mapping file, readable by its owner only. Raises ValueError if it exists and is not empty, and OSError."""
    if path.exists() and path.stat().st_size:
        raise ValueError(f"--mapping: {path} exists; choose another name")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    # A character that UTF-8 cannot encode, such as a byte of a file's name, becomes an escape of JSON: \udcff.
    with _naming(path), open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        if stat.S_ISREG(os.fstat(handle).st_mode):  # an existing empty file may have another mode
            os.fchmod(handle, 0o600)
            sync(path.absolute().parent)
        yield MappingWriter(file, path)


@dataclass(frozen=True, slots=True)
class Mapping:
    """The content of a mapping, by name of the copy. replacements, sha256: of a finished copy, how many entries it has,
    and its checksum."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    replacements: dict[str, int] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The names of all copies."""
        return {*self.entries, *self.replacements}

    def entries_of(self, name: str) -> Sequence[Entry] | None:
        """The entries of a copy; None for a name that the mapping does not have."""
        return self.entries.get(name, []) if name in self.names else None

    def is_whole(self, name: str) -> bool:
        """Whether the mapping has all entries of a copy."""
        return self.replacements.get(name) == len(self.entries.get(name, ()))


def read_mapping(lines: Iterable[str]) -> Mapping:
    """Read a mapping. lines: with their ends. Raises ValueError.

    A last line that is cut off is ignored: a run that was killed has no copy that needs it.
    """
    mapping = Mapping()
    for number, line in enumerate(lines, 1):
        try:
            line.encode()
            entry = json.loads(line)
            name = str(entry["file"])
            if "replacements" in entry:
                mapping.replacements[name] = int(entry["replacements"])
                mapping.sha256[name] = str(entry["sha256"])
            else:
                replaced_text(entry)
                mapping.entries.setdefault(name, []).append(entry)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            is_cut = isinstance(error, json.JSONDecodeError | UnicodeEncodeError) and not line.endswith("\n")
            if is_cut and line.startswith("{"):
                break
            raise ValueError(f"line {number}: not a line of a mapping") from None
    return mapping
