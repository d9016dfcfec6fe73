"""Divides Parquet and JSONL files into blocks of rows; reads and writes the blocks. Knows nothing of models and Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import Row, arrow_types, check_columns
from gliner_bento.files.records.readers import read
from gliner_bento.files.records.sources import Source, sources
from gliner_bento.files.records.writers import JsonLines

READABLE = ".jsonl, .ndjson, .parquet"
_ADDED = {**arrow_types(), "error": pa.string()}
"""The columns of the output that the input does not have."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of a file. kind: jsonl or parquet. first: index of the first row. rows: how many there are. offset: where
    the first row begins in a JSONL file, in bytes. output: name of the output file, which has the same format.
    """

    file: str
    kind: str
    first: int
    rows: int
    offset: int
    output: str


def blocks_of(inputs: Sequence[str], block_rows: int, text_column: str, skip: Callable[[str], None]) -> list[RowBlock]:
    """The blocks of all files, in order. skip: called with each path in folders that is not read. Raises
    `StartupError`."""
    files = [source for name in inputs for source in _sources(name, skip)]
    stems = [source.path.stem for source in files]
    if repeated := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise StartupError(f"{repeated}: two input files have this name; the output files are named after them")
    return [block for source in files for block in _divided(source, block_rows, text_column)]


def _sources(name: str, skip: Callable[[str], None]) -> list[Source]:
    found = list(sources([name], skip=skip))
    usable = [source for source in found if source.kind in ("jsonl", "parquet") and not source.gzip]
    if not usable:
        raise StartupError(f"{name}: is not, and does not contain, one of {READABLE}")
    for source in found:
        if source not in usable:
            skip(str(source.path))
    return usable


def _divided(source: Source, block_rows: int, text_column: str) -> Iterator[RowBlock]:
    divide = _divided_parquet if source.kind == "parquet" else _divided_jsonl  # both yield (first, rows, offset)
    try:
        for first, rows, offset in divide(source, block_rows, text_column):
            output = f"{source.path.stem}-{first:012}{source.path.suffix}"
            yield RowBlock(str(source.path.resolve()), source.kind, first, rows, offset, output)
    except (OSError, ValueError) as error:
        raise StartupError(f"{source.path}: {one_line(error)}") from None


def _divided_jsonl(source: Source, block_rows: int, text_column: str) -> Iterator[tuple[int, int, int]]:
    for _, row in islice(read(source), 1):  # the first row, if the file is not empty
        check_columns(row, [text_column], _ADDED)
    first = rows = offset = end = 0
    with source.path.open("rb") as lines:
        for line in lines:
            end += len(line)
            if line.strip():
                rows += 1
            if rows == block_rows:
                yield first, rows, offset
                first, rows, offset = first + rows, 0, end
    if rows:
        yield first, rows, offset


def _divided_parquet(source: Source, block_rows: int, text_column: str) -> Iterator[tuple[int, int, int]]:
    with pq.ParquetFile(source.path) as opened:
        check_columns(opened.schema_arrow.names, [text_column], _ADDED)
        total = opened.metadata.num_rows
    yield from ((first, min(block_rows, total - first), 0) for first in range(0, total, block_rows))


def read_block(block: RowBlock, text_column: str) -> tuple[Any, list[Any]]:
    """The rows of a block, as `write_block` takes them, and their texts."""
    path = Path(block.file)
    if block.kind == "parquet":
        table = _table(block)
        return table, table.column(text_column).to_pylist()
    source = Source(path, path.name, block.kind, block.offset)
    rows = [row for _, row in islice(read(source), block.rows)]
    return rows, [row.get(text_column) for row in rows]


def write_block(block: RowBlock, rows: Any, added: Sequence[Row], unfinished: Path, output: Path) -> None:
    """Write the rows with the `added` columns to `unfinished`, which is renamed to `output` when it is complete."""
    if block.kind == "parquet":
        for name, kind in _ADDED.items():
            rows = rows.append_column(name, pa.array([row[name] for row in added], kind))
        pq.write_table(rows, unfinished)
        os.replace(unfinished, output)
    else:
        writer = JsonLines(output, unfinished)
        writer.write([row | more for row, more in zip(rows, added, strict=True)])
        writer.finish()


def _table(block: RowBlock) -> pa.Table:
    """The rows of a block of a Parquet file, with their types."""
    with pq.ParquetFile(block.file) as opened:
        group_sizes = [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
    parts, group_begin, block_end = [], 0, block.first + block.rows
    for number, group_size in enumerate(group_sizes):
        begin, end = max(group_begin, block.first), min(group_begin + group_size, block_end)
        if begin < end:
            parts.append(_row_group(block.file, number).slice(begin - group_begin, end - begin))
        group_begin += group_size
    return pa.concat_tables(parts)


@lru_cache(maxsize=1)
def _row_group(file: str, number: int) -> Any:
    """A row group. Cached, because blocks of one row group follow each other."""
    with pq.ParquetFile(file) as opened:
        return opened.read_row_group(number)
