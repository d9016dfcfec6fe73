"""A Parquet file that is redacted or restored. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO, Any

from gliner_bento.files.records.columns import pyarrow
from gliner_bento.files.records.readers import ReadOptions
from gliner_bento.files.redaction.columns import Columns
from gliner_bento.files.redaction.mapping import Entry, replaced_text
from gliner_bento.files.redaction.text_file import Field, TextRecord
from gliner_bento.privacy.conversation import Finds, redact_document
from gliner_bento.privacy.redact import PlaceholderOriginals, ReplacedText, restore_anyway
from gliner_bento.privacy.styles import Replace


class ParquetFile:
    """Like `TextFile`, with rows as records. Other columns, types, row groups and metadata are kept."""

    def __init__(self, source: IO[bytes], out: IO[bytes], options: ReadOptions) -> None:
        self._pa = pa = pyarrow()
        pq = pa.parquet
        try:
            self._file = pq.ParquetFile(source)
        except pa.ArrowException as error:
            raise ValueError(str(error)) from None
        schema = self._file.schema_arrow
        self.columns = Columns(options.columns, options.kept_columns)
        self._names = self._chosen(schema)
        group = self._file.metadata.row_group(0) if self._file.num_row_groups else None
        compression = group.column(0).compression if group and group.num_columns else "snappy"
        self._writer = pq.ParquetWriter(out, schema, compression=compression)
        self._rows: list[dict[str, str]] = []

    def _chosen(self, schema: Any) -> list[str]:
        """The names of the columns to redact. Raises ValueError."""
        chosen = []
        for name in schema.names if self.columns.takes_all else self.columns.names:
            if schema.names.count(name) != 1:
                raise ValueError(f"must have one column {name!r}; there are {', '.join(map(repr, schema.names))}")
            kind = schema.field(name).type
            if self._pa.types.is_string(kind) or self._pa.types.is_large_string(kind):
                chosen.append(name)
            elif not self.columns.takes_all:
                raise ValueError(f"column {name!r} is {kind}, and must be a string")
        return [name for name in chosen if self.columns.takes(name)]

    def _note_unseen(self, table: Any) -> None:
        """Note the columns of a row group that may have texts, such as lists of strings, and are not redacted."""
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name not in self._names and column.null_count < len(column) and self._has_texts(column.type):
                self.columns.pass_over(name)

    def _has_texts(self, kind: Any) -> bool:
        types = self._pa.types
        if types.is_dictionary(kind):
            return self._has_texts(kind.value_type)
        if types.is_nested(kind):
            return any(self._has_texts(kind.field(index).type) for index in range(kind.num_fields))
        return not (types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind))

    def records(self) -> Iterator[TextRecord]:
        """Rows in order."""
        number = 0
        for group in range(self._file.num_row_groups):
            table = self._file.read_row_group(group)
            self._note_unseen(table)
            columns = [table.column(name) for name in self._names]
            for row in range(table.num_rows):
                number += 1
                values = ((name, column[row].as_py()) for name, column in zip(self._names, columns, strict=True))
                yield TextRecord(number, table, [Field(text, column=name) for name, text in values if text is not None])

    def redact(self, record: TextRecord, finds: Sequence[Finds], style: Replace) -> list[Entry]:
        """Write the next row; returns its lines of the mapping. finds: of each text. Raises LimitExceeded."""
        texts = redact_document([field.text for field in record.fields], finds, style).texts
        redacted = {field.column: text for field, text in zip(record.fields, texts, strict=True)}
        self._write(record.raw, {column: cell.text for column, cell in redacted.items()})
        return [
            {"row": record.line - 1, "column": column, **asdict(replacement)}
            for column, cell in redacted.items()
            for replacement in cell.replacements
        ]

    def restore(
        self, entries: Sequence[Entry] | None, placeholders: Sequence[ReplacedText], *, unchanged: bool
    ) -> Sequence[str]:
        """See `TextFile.restore`."""
        by_cell: dict[tuple[int, str], list[ReplacedText]] = {}
        for entry in entries or ():
            by_cell.setdefault((int(entry["row"]), entry["column"]), []).append(replaced_text(entry))
        originals = PlaceholderOriginals(placeholders if entries is None else ())
        left: list[str] = []
        for record in self.records():
            cells = {
                field.column: originals.restored(field.text)
                if entries is None
                else restore_anyway(field.text, by_cell.get((record.line - 1, field.column), []), unchanged=unchanged)
                for field in record.fields
            }
            self._write(record.raw, {column: cell.text for column, cell in cells.items()})
            left += [placeholder for cell in cells.values() for placeholder in cell.left]
        return left

    def close(self) -> None:
        """Complete the file, after its last row."""
        self._writer.close()

    def _write(self, table: Any, texts: dict[str, str]) -> None:
        """Append a row. The row group, which is `table` with new texts, is written when it is complete."""
        self._rows.append(texts)
        if len(self._rows) < table.num_rows:
            return
        for name in self._names:
            index = table.schema.get_field_index(name)
            field = table.schema.field(index)
            column = self._pa.array([row.get(name) for row in self._rows], field.type)
            table = table.set_column(index, field, column)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows = []
