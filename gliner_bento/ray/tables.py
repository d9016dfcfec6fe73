"""Blocks of rows of Parquet and JSONL files: divides, reads, writes. Knows nothing of models and of Ray."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import Row, arrow_types, check_columns

_ADDED = {**arrow_types(), "error": pa.string()}
"""The columns of the output that the input does not have."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a file. first: number of the first row; offset: its first byte, in JSONL. output: name of its file."""

    file: str
    first: int
    rows: int
    offset: int
    output: str


def blocks_of(inputs: Sequence[Path], block_rows: int, text_column: str) -> list[Block]:
    """The blocks of all files, in order. Raises `StartupError`."""
    files = [file for one in inputs for file in _files(one)]
    stems = [file.stem for file in files]
    if repeated := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise StartupError(f"{repeated}: two input files have this name; the output files are named after them")
    if not files:
        raise StartupError(f"no input: {', '.join(map(str, inputs))} has no {' or '.join(FORMATS)} file")
    blocks = []
    for file in files:
        try:
            for first, rows, offset in FORMATS[file.suffix].divide(file, block_rows, text_column):
                blocks.append(Block(str(file), first, rows, offset, f"{file.stem}-{first:012}{file.suffix}"))
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            raise StartupError(f"{file}: {one_line(error)}") from None
    return blocks


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise StartupError(f"{path}: no such file or folder")
    if path.is_file():
        if path.suffix not in FORMATS:
            raise StartupError(f"{path}: must be a {' or '.join(FORMATS)} file")
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in FORMATS and file.is_file())


def _divide_jsonl(file: Path, block_rows: int, text_column: str) -> Iterator[tuple[int, int, int]]:
    first = rows = offset = end = 0
    with file.open("rb") as lines:
        for line in lines:
            if not end:
                check_columns(json.loads(line), [text_column], _ADDED)
            end += len(line)
            rows += 1
            if rows == block_rows:
                yield first, rows, offset
                first, rows, offset = first + rows, 0, end
    if rows:
        yield first, rows, offset


def _read_jsonl(block: Block, text_column: str) -> tuple[list[Row], list[Any]]:
    with Path(block.file).open("rb") as lines:
        lines.seek(block.offset)
        rows = [json.loads(lines.readline()) for _ in range(block.rows)]
    return rows, [row.get(text_column) for row in rows]


def _write_jsonl(file: Path, rows: list[Row], added: Sequence[Row]) -> None:
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row | more, ensure_ascii=False) + "\n" for row, more in zip(rows, added, strict=True))


def _divide_parquet(file: Path, block_rows: int, text_column: str) -> Iterator[tuple[int, int, int]]:
    with pq.ParquetFile(file) as opened:
        check_columns(opened.schema_arrow.names, [text_column], _ADDED)
        total = opened.metadata.num_rows
    yield from ((first, min(block_rows, total - first), 0) for first in range(0, total, block_rows))


def _read_parquet(block: Block, text_column: str) -> tuple[pa.Table, list[Any]]:
    with pq.ParquetFile(block.file) as opened:
        sizes = [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
    parts, begin, end = [], 0, block.first + block.rows
    for number, size in enumerate(sizes):
        first, last = max(begin, block.first), min(begin + size, end)
        if first < last:
            parts.append(_row_group(block.file, number).slice(first - begin, last - first))
        begin += size
    table = pa.concat_tables(parts)
    return table, table.column(text_column).to_pylist()


@lru_cache(maxsize=1)
def _row_group(file: str, number: int) -> Any:
    """A row group. Cached, because blocks of one row group follow each other."""
    with pq.ParquetFile(file) as opened:
        return opened.read_row_group(number)


def _write_parquet(file: Path, table: pa.Table, added: Sequence[Row]) -> None:
    for name, kind in _ADDED.items():
        table = table.append_column(name, pa.array([row[name] for row in added], kind))
    pq.write_table(table, file)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files.

    divide: first row, number of rows and offset of each block. read: the rows of a block, and their texts.
    write: rows that were read, with more columns.
    """

    divide: Callable[[Path, int, str], Iterator[tuple[int, int, int]]]
    read: Callable[[Block, str], tuple[Any, list[Any]]]
    write: Callable[[Path, Any, Sequence[Row]], None]


FORMATS = {
    ".jsonl": Format(_divide_jsonl, _read_jsonl, _write_jsonl),
    ".parquet": Format(_divide_parquet, _read_parquet, _write_parquet),
}
"""By the suffix of the file; the output has the format of its input."""
