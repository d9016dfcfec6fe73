"""Reads the records of a file one after another, in memory that does not depend on the file."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec

from gliner_bento.exits import StartupError, one_line
from gliner_bento.records.columns import Row, pyarrow
from gliner_bento.records.sources import Source, has_tabs

MAX_RECORD_BYTES = 64 * 2**20
FILE_ERRORS = (OSError, EOFError, zlib.error)
_BATCH_ROWS = 256
_UNITS = {"jsonl": "line", "csv": "record", "parquet": "row"}

csv.field_size_limit(MAX_RECORD_BYTES)


def read(source: Source, start: int = 0) -> Iterator[tuple[int, Row]]:
    """Each record from number `start` on, and its number. Raises `StartupError`, which names file and place."""
    number = start - 1
    try:
        for number, row in _READERS[source.kind](source, start):
            yield number, row
    except (ValueError, csv.Error, msgspec.DecodeError) as error:
        raise StartupError(f"{place(source, number + 1)}: {one_line(error)}") from None
    except FILE_ERRORS as error:
        raise StartupError(f"{source.path}: {getattr(error, 'strerror', None) or one_line(error)}") from None


def place(source: Source, number: int) -> str:
    """A record, for people: file and line."""
    unit = _UNITS.get(source.kind)
    return f"{source.path}: {unit} {number + 1}" if unit else str(source.path)


def opened(source: Source) -> IO[bytes]:
    """The file, decompressed. Reading it raises `FILE_ERRORS`."""
    return gzip.open(source.path, "rb") if source.gzip else source.path.open("rb")  # type: ignore[return-value]


def _text(source: Source, start: int) -> Iterator[tuple[int, Row]]:
    if start:
        return
    with opened(source) as file:
        content = file.read(MAX_RECORD_BYTES + 1)
    _check_size(content)
    yield 0, {"file": source.name, "text": content.decode("utf-8-sig")}


def _jsonl(source: Source, start: int) -> Iterator[tuple[int, Row]]:
    """Blank lines are no records, but count as lines."""
    with opened(source) as file:
        number = -1
        while line := file.readline(MAX_RECORD_BYTES + 1):
            number += 1
            if number >= start and line.strip():
                yield number, _object(line, number, source)


def _object(line: bytes, number: int, source: Source) -> Row:
    try:
        _check_size(line)
        row = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line)
    except (ValueError, msgspec.DecodeError) as error:
        raise StartupError(f"{place(source, number)}: {one_line(error)}") from None
    if not isinstance(row, dict):
        raise StartupError(f"{place(source, number)}: must be a JSON object")
    return row


def _csv(source: Source, start: int) -> Iterator[tuple[int, Row]]:
    tabs = has_tabs(source)
    with io.TextIOWrapper(opened(source), encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, dialect="excel-tab" if tabs else "excel", strict=True)
        header = next(lines, [])
        if len(set(header)) < len(header):
            raise ValueError("two columns of the header have the same name")
        rows = (row for row in lines if row)
        for number, row in enumerate(rows):
            if len(row) != len(header):
                raise ValueError(f"{len(row)} fields, the header has {len(header)} (ends at line {lines.line_num})")
            if number >= start:
                yield number, dict(zip(header, row, strict=True))


def _parquet(source: Source, start: int) -> Iterator[tuple[int, Row]]:
    pq = pyarrow().parquet
    number = 0
    with pq.ParquetFile(source.path) as file:
        groups: list[int] = []
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if groups or number + rows > start:
                groups.append(group)
            else:
                number += rows
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups):
            if number + batch.num_rows > start:
                for place, row in enumerate(batch.to_pylist(), number):
                    if place >= start:
                        yield place, row
            number += batch.num_rows


def _check_size(content: bytes) -> None:
    if len(content) > MAX_RECORD_BYTES:
        raise ValueError(f"longer than {MAX_RECORD_BYTES // 2**20} MiB")


_READERS: dict[str, Callable[[Source, int], Iterator[tuple[int, Row]]]] = {
    "text": _text,
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
}


def parquet_file(source: Source) -> tuple[int, Any]:
    """Rows and Arrow schema. Raises `StartupError`."""
    pa = pyarrow()
    try:
        with pa.parquet.ParquetFile(source.path) as file:
            return file.metadata.num_rows, file.schema_arrow
    except (OSError, pa.ArrowInvalid) as error:
        raise StartupError(f"{source.path}: {one_line(error)}") from None
