"""One pass over the input before the work: counts and checks every record, and finds the types of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gliner_bento.exits import StartupError, one_line
from gliner_bento.records.columns import Row, arrow_types, check_columns, pyarrow
from gliner_bento.records.readers import parquet_file, place, read
from gliner_bento.records.sources import Source

_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Scan:
    """records: how many there are. schema: of Parquet output; None for JSONL."""

    records: int
    schema: Any = None


def scan(files: Iterable[Source], text_column: str, more_columns: Sequence[str], *, typed: bool) -> Scan:
    """Check that each record has the columns, and a string or null as its text. Raises `StartupError`.

    typed: find the schema of the output.
    """
    records, schemas = 0, _Schemas() if typed else None
    for source in files:
        if source.kind == "text":
            records += sum(1 for _ in read(source))
            if schemas:
                schemas.add(["file", "text"], source)
            continue
        if source.kind == "parquet":
            records += _scan_parquet(source, [text_column, *more_columns], schemas)
            continue
        rows = _checked(source, text_column, more_columns)
        while block := list(islice(rows, _ROWS)):
            records += len(block)
            if schemas:
                schemas.infer(block, source)
    return Scan(records, schemas.output() if schemas else None)


def _scan_parquet(source: Source, columns: Sequence[str], schemas: _Schemas | None) -> int:
    rows, schema = parquet_file(source)
    try:
        check_columns(schema.names, columns)
        kind = schema.field(columns[0]).type
        if str(kind) not in ("string", "large_string", "string_view", "null"):
            raise ValueError(f"column {columns[0]!r} must be strings, not {kind}")
    except ValueError as error:
        raise StartupError(f"{source.path}: {error}") from None
    if schemas:
        schemas.merge(schema.remove_metadata(), source)
    return rows


def _checked(source: Source, text_column: str, more_columns: Sequence[str]) -> Iterator[Row]:
    for number, row in read(source):
        try:
            check_columns(row, [text_column, *more_columns])
            if not isinstance(row[text_column], str | None):
                raise ValueError(f"column {text_column!r} must be a string or null")
        except ValueError as error:
            raise StartupError(f"{place(source, number)}: {error}") from None
        yield row


class _Schemas:
    """The types of all columns, as wide as the records need."""

    def __init__(self) -> None:
        self._pa = pyarrow()
        self._schema = self._pa.schema([])

    def add(self, columns: Sequence[str], source: Source) -> None:
        """Columns of strings."""
        self.merge(self._pa.schema([(name, self._pa.string()) for name in columns]), source)

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
            self._schema = self._pa.unify_schemas([self._schema, schema], promote_options="permissive")
        except (self._pa.ArrowInvalid, self._pa.ArrowTypeError) as error:
            raise self._fault(source, one_line(error)) from None

    def output(self) -> Any:
        """With the columns of a result."""
        return self._pa.schema([*self._schema, *arrow_types().items()])

    def _fault(self, source: Source, message: str) -> StartupError:
        return StartupError(f"{source.path}: {message}; Parquet needs one type per column, .jsonl output does not")
