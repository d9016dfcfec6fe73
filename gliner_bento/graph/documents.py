"""Documents of a graph: results that were extracted before, or texts whose results are needed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SUFFIXES = (".jsonl", ".parquet", ".txt", ".md")

Document = str | Mapping[str, Any]
"""A text, or a row that has `entities` and `relations`."""


def find_documents(inputs: Sequence[Path]) -> list[Path]:
    """The files of inputs and folders. Raises ValueError."""
    files: list[Path] = []
    for path in inputs:
        if path.is_dir():
            files += sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
        elif not path.is_file():
            raise ValueError(f"{path}: no such file or folder")
        elif path.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{path}: must be one of {', '.join(SUFFIXES)}")
        else:
            files.append(path)
    if not files:
        raise ValueError(f"no {', '.join(SUFFIXES)} file in {', '.join(map(str, inputs))}")
    return files


def read_documents(path: Path, column: str) -> Iterator[tuple[str, Document]]:
    """Place and content of each document. column: of the text in rows without entities. Raises ValueError."""
    suffix = path.suffix.lower()
    if suffix in (".txt", ".md"):
        yield str(path), path.read_text(encoding="utf-8-sig")
        return
    for number, row in _rows(path) if suffix == ".jsonl" else _parquet_rows(path):
        place = f"{path}:{number}"
        if not isinstance(row, dict):
            raise ValueError(f"{place}: must be a JSON object")
        if "entities" in row:
            yield place, row
        elif isinstance(row.get(column), str):
            yield place, row[column]
        else:
            raise ValueError(f"{place}: has neither 'entities' nor a text {column!r}")


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: invalid JSON: {error}") from None


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise ValueError("Parquet needs pyarrow, which is not installed: pip install pyarrow") from None
    number = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
