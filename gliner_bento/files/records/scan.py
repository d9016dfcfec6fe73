"""Reads the whole input once before a job: counts and checks all records, and determines the types of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import RESULT_COLUMNS, Row, arrow_types, check_columns, pyarrow
from gliner_bento.files.records.readers import ReadOptions, Unreadable, read
from gliner_bento.files.records.sources import Source

_BLOCK_ROWS = 1000


@dataclass(slots=True)
class Scan:
    """records: how many can be read. skipped: why files cannot be read, by path. schema: schema of Parquet output."""

    records: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    schema: Any = None


def scan(
    files: Iterable[Source],
    options: ReadOptions,
    columns: Sequence[str] = (),
    *,
    typed: bool = False,
    more: Sequence[str] = (),
) -> Scan:
    """Count and check all records, and skip unreadable files. Raises `StartupError` if no type fits a column.

    columns: columns that a Parquet file must have, the first with strings; if given, only its metadata is read.
    typed: determine the schema of the output, in which a column's type fits all its values. more: see `arrow_types`.
    """
    scanned, pa = Scan(), pyarrow() if typed else None
    schema: Any = pa.schema([]) if pa else None
    for source in files:
        records, wider_schema = 0, schema
        try:
            for num_rows, block_schema in _blocks(source, options, columns, more, pa):
                records += num_rows
                if pa:
                    wider_schema = pa.unify_schemas([wider_schema, block_schema], promote_options="permissive")
        except Unreadable as error:
            scanned.skipped[source.shown] = str(error)
        except (ValueError, TypeError) as error:
            fault = f"{source.shown}: {one_line(error)}"
            raise StartupError(f"{fault}; Parquet needs one type per column, .jsonl output does not") from None
        else:
            scanned.records, schema = scanned.records + records, wider_schema
    scanned.schema = pa.schema([*schema, *arrow_types(more).items()]) if pa else None
    return scanned


def _blocks(
    source: Source, options: ReadOptions, columns: Sequence[str], more: Sequence[str], pa: Any
) -> Iterator[tuple[int, Any]]:
    """Number of records of each block and, with Arrow (`pa`), their schema. Raises ValueError if no schema fits."""
    if source.kind == "parquet" and columns:
        yield _parquet_block(source, columns, more)
        return
    rows = (row for _, row in read(source, 0, options))
    while block := list(islice(rows, _BLOCK_ROWS)):
        names = dict.fromkeys(name for row in block for name in row) if pa else ()
        schema = pa.schema([(name, _type_of(name, block, pa)) for name in names]) if pa else None
        yield len(block), schema


def _type_of(column: str, rows: Sequence[Row], pa: Any) -> Any:
    try:
        return pa.array([row.get(column) for row in rows]).type
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"column {column!r}: {one_line(error)}") from None


def _parquet_block(source: Source, columns: Sequence[str], more: Sequence[str]) -> tuple[int, Any]:
    try:
        with pyarrow().parquet.ParquetFile(source.path) as file:
            num_rows, schema = file.metadata.num_rows, file.schema_arrow
        check_columns(schema.names, columns, [*RESULT_COLUMNS, *more])
        kind = schema.field(columns[0]).type
        if str(kind) not in ("string", "large_string", "string_view", "null"):
            raise ValueError(f"column {columns[0]!r} must be strings, not {kind}")
    except (OSError, ValueError) as error:
        raise Unreadable(f"{source.shown}: {one_line(error)}") from None
    return num_rows, schema.remove_metadata()


def column_check(
    text_column: str, more_columns: Sequence[str], added: Sequence[str] = ()
) -> Callable[[Source, Row], None]:
    """A check that a JSONL or CSV record has the columns, with a string or null as its text, and no result columns.

    added: result columns besides `RESULT_COLUMNS`.
    """

    def check(source: Source, row: Row) -> None:
        if source.kind in ("text", "parquet", "document"):
            return
        check_columns(row, [text_column, *more_columns], [*RESULT_COLUMNS, *added])
        if not isinstance(row[text_column], str | None):
            raise ValueError(f"column {text_column!r} must be a string or null")

    return check
