"""Packages without content, and the build backend of one, for tests that run pip."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str) -> str:
    """The name of the file."""
    file, information = f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / file, "w") as wheel:
        wheel.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")
    return file


def build_editable(folder: str, *_: object) -> str:
    """PEP 660."""
    return write_wheel(Path(folder), "gliner_bento", "0")
