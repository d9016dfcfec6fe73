"""One pass over the input before the work: counts and checks every record, and finds the types of its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import Row, arrow_types, check_columns, pyarrow
from gliner_bento.files.records.readers import Reading, Unreadable, parquet_file, read
from gliner_bento.files.records.sources import Source

_ROWS = 1000


@dataclass(slots=True)
class Scan:
    """records: how many can be read. skipped: by path, faults of files that cannot. schema: of Parquet output."""

    records: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    schema: Any = None


def scan(files: Iterable[Source], reading: Reading, columns: Sequence[str] = (), *, typed: bool = False) -> Scan:
    """Count and check all records; a file that cannot be read is skipped. Raises `StartupError` if no type fits.

    columns: that records have, of Parquet files whose rows are not read; the first is the text.
    typed: find the schema of the output.
    """
    found, schemas = Scan(), _Schemas() if typed else None
    for source in files:
        before = schemas and schemas.current
        try:
            if source.kind == "parquet" and columns:
                found.records += _scan_parquet(source, columns, schemas)
            else:
                found.records += _scan_rows(source, reading, schemas)
        except Unreadable as error:
            found.skipped[str(source.path)] = str(error)
            if schemas:
                schemas.current = before
    found.schema = schemas.output() if schemas else None
    return found


def _scan_rows(source: Source, reading: Reading, schemas: _Schemas | None) -> int:
    records, rows = 0, (row for _, row in read(source, 0, reading))
    while block := list(islice(rows, _ROWS)):
        records += len(block)
        if schemas:
            schemas.infer(block, source)
    return records


def _scan_parquet(source: Source, columns: Sequence[str], schemas: _Schemas | None) -> int:
    rows, schema = parquet_file(source)
    try:
        check_columns(schema.names, columns)
        kind = schema.field(columns[0]).type
        if str(kind) not in ("string", "large_string", "string_view", "null"):
            raise ValueError(f"column {columns[0]!r} must be strings, not {kind}")
    except ValueError as error:
        raise Unreadable(f"{source.path}: {error}") from None
    if schemas:
        schemas.merge(schema.remove_metadata(), source)
    return rows


def column_check(text_column: str, more_columns: Sequence[str]) -> Callable[[Source, Row], None]:
    """A check that a record has the columns, and a string or null as its text; text files have columns of their own."""

    def check(source: Source, row: Row) -> None:
        if source.kind in ("text", "parquet"):
            return
        check_columns(row, [text_column, *more_columns])
        if not isinstance(row[text_column], str | None):
            raise ValueError(f"column {text_column!r} must be a string or null")

    return check


class _Schemas:
    """The types of all columns, as wide as the records need."""

    def __init__(self) -> None:
        self._pa = pyarrow()
        self.current = self._pa.schema([])

    def infer(self, rows: Sequence[Row], source: Source) -> None:
        """Columns of JSON values."""
        fields = []
        for name in dict.fromkeys(name for row in rows for name in row):
            try:
                fields.append((name, self._pa.array([row.get(name) for row in rows]).type))
            except (self._pa.ArrowInvalid, self._pa.ArrowTypeError, OverflowError) as error:
                raise self._fault(source, f"column {name!r}: {one_line(error)}") from None
        self.merge(self._pa.schema(fields), source)

    def merge(self, schema: Any, source: Source) -> None:
        """Widen the types. Raises `StartupError` where no type fits."""
        try:
            self.current = self._pa.unify_schemas([self.current, schema], promote_options="permissive")
        except (self._pa.ArrowInvalid, self._pa.ArrowTypeError) as error:
            raise self._fault(source, one_line(error)) from None

    def output(self) -> Any:
        """With the columns of a result."""
        return self._pa.schema([*self.current, *arrow_types().items()])

    def _fault(self, source: Source, message: str) -> StartupError:
        return StartupError(f"{source.path}: {message}; Parquet needs one type per column, .jsonl output does not")
