"""A Parquet file that is redacted, restored or checked. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import IO, Any

from gliner_bento.files.records.columns import pyarrow
from gliner_bento.files.records.readers import Reading
from gliner_bento.files.redaction.records import Field, Record
from gliner_bento.files.redaction.redact import Replacement, redact, restore_anyway
from gliner_bento.files.redaction.spans import Span
from gliner_bento.files.redaction.styles import Replace
from gliner_bento.files.redaction.text_file import Entry, Finding


class ParquetFile:
    """Other columns, types, row groups and metadata are kept. As `TextFile`; a record is a row."""

    def __init__(self, source: IO[bytes], out: IO[bytes], reading: Reading) -> None:
        self._pa = pa = pyarrow()
        pq = pa.parquet
        try:
            self._file = pq.ParquetFile(source)
        except pa.ArrowException as error:
            raise ValueError(str(error)) from None
        schema = self._file.schema_arrow
        self._columns = reading.columns
        for name in self._columns:
            if name not in schema.names:
                raise ValueError(f"no column {name!r}; there are {', '.join(map(repr, schema.names))}")
            kind = schema.field(name).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise ValueError(f"column {name!r} is {kind}, and must be a string")
        codecs = self._file.metadata.row_group(0) if self._file.num_row_groups else None
        compression = codecs.column(0).compression if codecs and codecs.num_columns else "snappy"
        self._writer = pq.ParquetWriter(out, schema, compression=compression)
        self._groups = self._row_groups()
        self._rows: list[dict[str, str | None]] = []
        self._group: Any = None
        self._row = 0

    def records(self) -> Iterator[Record]:
        """Rows in order."""
        for number in range(self._file.num_row_groups):
            table = self._file.read_row_group(number, columns=list(self._columns))
            columns = [table.column(name) for name in self._columns]
            for row in range(table.num_rows):
                values = [column[row].as_py() for column in columns]
                yield Record("", [Field(value) for value in values if value is not None])

    def redact(self, record: Record, spans: Iterable[Iterable[Span]], style: Replace) -> list[Entry]:
        """Write the next row."""
        entries: list[Entry] = []
        names = self._names_of_values()
        values: dict[str, str | None] = {}
        for name, field, found in zip(names, record.fields, spans, strict=True):
            redacted = redact(field.text, found, style)
            values[name] = redacted.text
            entries += [{"row": self._row, "column": name, **asdict(one)} for one in redacted.replacements]
        self._write(values)
        return entries

    def restore(self, entries: Iterable[Entry]) -> None:
        """Write the original. Raises RestoreError."""
        of_row = {row: list(group) for row, group in groupby(entries, key=lambda entry: int(entry["row"]))}
        for record in self.records():
            values: dict[str, str | None] = {}
            for name, field in zip(self._names_of_values(), record.fields, strict=True):
                own = [
                    Replacement(**{key: value for key, value in entry.items() if key not in ("row", "column")})
                    for entry in of_row.get(self._row, ())
                    if entry["column"] == name
                ]
                values[name] = restore_anyway(field.text, own)
            self._write(values)

    def findings(self, find: Callable[[str], Iterable[Span]]) -> Iterator[Finding]:
        """In every row."""
        for row, record in enumerate(self.records(), 1):
            for field in record.fields:
                for span in find(field.text):
                    yield Finding(row, span.label, field.text[span.start : span.end])

    def close(self) -> None:
        """After the last record."""
        self._writer.close()

    def _row_groups(self) -> Iterator[Any]:
        return (self._file.read_row_group(number) for number in range(self._file.num_row_groups))

    def _names_of_values(self) -> list[str]:
        """Columns that are not null in the next row."""
        while self._group is None or len(self._rows) == self._group.num_rows:
            self._group = next(self._groups)
        row = len(self._rows)
        return [name for name in self._columns if self._group.column(name)[row].is_valid]

    def _write(self, values: dict[str, str | None]) -> None:
        self._rows.append(values)
        self._row += 1
        if len(self._rows) < self._group.num_rows:
            return
        table = self._group
        for name in self._columns:
            place = table.schema.get_field_index(name)
            field = table.schema.field(place)
            column = self._pa.array([row.get(name) for row in self._rows], field.type)
            table = table.set_column(place, field, column)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._group, self._rows = None, []
