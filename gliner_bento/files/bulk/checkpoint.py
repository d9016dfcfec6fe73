"""How far a job has come: one small file beside its output, replaced after each chunk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gliner_bento.errors import StartupError
from gliner_bento.storage.files import sync


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """After a chunk.

    identity: what the output depends on. records: of all inputs. skipped: files that cannot be read, with the reason.
    schema: of Parquet output, serialized, in hexadecimal.
    file, number: where the next record is. done, failed: records until there. output, errors: positions of the writers.
    complete: all chunks are written.
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
        """Replace the file, durably."""
        unfinished = path.with_name(f"{path.name}.new")
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        sync(unfinished)
        os.replace(unfinished, path)
        sync(path.parent)


def load(path: Path, identity: dict[str, Any]) -> Checkpoint | None:
    """The one of an earlier run. Raises `StartupError` for one of another job, and for a file that is none."""
    try:
        found = Checkpoint(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise StartupError(f"{path}: is no checkpoint of this version; start with --overwrite") from None
    given = json.loads(json.dumps(identity))
    if differing := sorted(name for name in given if given[name] != found.identity.get(name)):
        raise StartupError(f"{path}: is of a job with other {', '.join(differing)}; start with --overwrite")
    return found
