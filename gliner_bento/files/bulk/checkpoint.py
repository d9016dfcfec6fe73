"""The progress of a bulk job: a small file beside its output, replaced after each chunk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gliner_bento.errors import StartupError
from gliner_bento.storage.files import sync


@dataclass(frozen=True, slots=True)
class SavedProgress:
    """The progress after a chunk.

    identity: what the output depends on, see `Job.identity`.
    records: number of records in all inputs. skipped: files that cannot be read, with the reason.
    schema: the Arrow schema of Parquet output, serialized, in hexadecimal; None for other formats.
    file: index of the file of the next record. number: index of that record in the file.
    done: number of records before the next one. failed: how many of them failed.
    output, errors: where the writers continue, see `ChunkWriter.position`.
    complete: whether all records are done.
    """

    identity: dict[str, Any]
    records: int
    skipped: dict[str, str]
    schema: str | None = None
    file: int = 0
    number: int = 0
    done: int = 0
    failed: int = 0
    output: int = 0
    errors: int = 0
    complete: bool = False

    def save(self, path: Path) -> None:
        """Write the file and sync it to disk; a crash leaves the old file or the new one."""
        unfinished = path.with_name(f"{path.name}.new")
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        sync(unfinished)
        os.replace(unfinished, path)
        sync(path.parent)


def load(path: Path, identity: dict[str, Any]) -> SavedProgress | None:
    """Read the checkpoint of an earlier run; None if there is none. Raises `StartupError` if it belongs to another job,
    or is not valid."""
    if not path.exists():
        return None
    try:
        checkpoint = SavedProgress(**(stored(path) or {}))
    except TypeError:
        hint = "start with --overwrite" if stored(path) else "choose another output"
        raise StartupError(f"{path}: not a checkpoint of this version; {hint}") from None
    if differing := differing_fields(identity, checkpoint.identity):
        raise StartupError(f"{path}: belongs to a job with other {', '.join(differing)}; start with --overwrite")
    return checkpoint


def stored(path: Path) -> dict[str, Any] | None:
    """The fields of a checkpoint of any version; None for any other file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("identity"), dict) else None


def differing_fields(identity: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """The names of the fields in which a job differs from a stored one, which was read from JSON; sorted."""
    given = json.loads(json.dumps(identity))  # as JSON has it: lists for tuples, strings as keys
    return sorted(name for name in given.keys() | stored.keys() if given.get(name) != stored.get(name))
