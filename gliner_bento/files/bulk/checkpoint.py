"""How far a job has come: one small file beside its output, replaced after each chunk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gliner_bento.errors import StartupError
from gliner_bento.storage.files import sync


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """After a chunk.

    identity: what the output depends on; inputs: digest of the input files; records: of all of them.
    skipped: files that cannot be read, with the reason.
    schema: of Parquet output, serialized, in hexadecimal.
    file, number: where the next record is. done, failed: records until there. output, errors: positions of the writers.
    complete: all chunks are written.
    """

    identity: dict[str, Any]
    inputs: str
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
        """Replace the file, durably."""
        unfinished = path.with_name(f"{path.name}.new")
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        sync(unfinished)
        os.replace(unfinished, path)
        sync(path.parent)

    def check(self, identity: dict[str, Any], inputs: str, path: Path) -> None:
        """Raise `StartupError` if it is of another job."""
        given = json.loads(json.dumps(identity))
        differing = sorted(name for name in given if given[name] != self.identity.get(name))
        differing += ["files (one has changed)"] if not differing and inputs != self.inputs else []
        if differing:
            raise StartupError(f"{path}: is of a job with other {', '.join(differing)}; start with --overwrite")

    def after(self, **values: Any) -> Checkpoint:
        """The next one."""
        return replace(self, **values)


def load(path: Path) -> Checkpoint | None:
    """The one of an earlier run. Raises `StartupError` for a file that is none."""
    try:
        return Checkpoint(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise StartupError(f"{path}: is no checkpoint of this version; start with --overwrite") from None
