"""The manifest of an installed adapter: where it came from, and the hashes of its two files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from gliner_bento.adapters.archive import CONFIG_FILE, FILES, WEIGHTS_FILE
from gliner_bento.adapters.base import Source
from gliner_bento.storage.files import sha256

MANIFEST_FILE = "manifest.json"


class Manifest(BaseModel):
    """Describes an installed adapter. sha256: the hashes of its configuration and its weights, in hexadecimal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Source
    size_bytes: int
    sha256: tuple[str, str]

    @classmethod
    def of(cls, folder: Path, source: Source) -> Manifest:
        """The manifest of the adapter in `folder`."""
        size_bytes = sum((folder / name).stat().st_size for name in FILES)
        return cls(source=source, size_bytes=size_bytes, sha256=_digests(folder))

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest in `folder`; None if it is missing or damaged."""
        try:
            return cls.model_validate_json((folder / MANIFEST_FILE).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None

    def write(self, folder: Path) -> None:
        """Write the manifest into `folder`."""
        (folder / MANIFEST_FILE).write_text(self.model_dump_json(), encoding="utf-8")

    @property
    def version(self) -> str:
        """Identifies the content of the two files."""
        return hashlib.sha256("".join(self.sha256).encode()).hexdigest()

    def matches(self, folder: Path) -> bool:
        """Whether the files in `folder` are undamaged."""
        try:
            return self.sha256 == _digests(folder)
        except OSError:
            return False

    def difference(self, new: Manifest) -> str:
        """Which file of `new` differs (the weights, if both files do), with its old and its new hash."""
        file = 1 if self.sha256[1] != new.sha256[1] else 0  # index in `FILES` and `sha256`
        return f"{FILES[file]} has sha256 {self.sha256[file]}, not {new.sha256[file]}"


def _digests(folder: Path) -> tuple[str, str]:
    return sha256(folder / CONFIG_FILE), sha256(folder / WEIGHTS_FILE)
