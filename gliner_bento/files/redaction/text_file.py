"""Redacts or restores a text, JSONL or CSV file: finds the texts in its lines, and keeps every other byte.

A replacement (`styles.py`) has only letters, digits and `[]_*`, which neither JSON nor CSV escapes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO, Any, NamedTuple

from gliner_bento.files.records import readers
from gliner_bento.files.records.readers import ReadOptions, byte_order_mark, decoded, not_encoded, opened
from gliner_bento.files.records.sources import Source, delimiter_of
from gliner_bento.files.redaction.columns import Columns
from gliner_bento.files.redaction.mapping import Entry, replaced_text
from gliner_bento.privacy.conversation import Finds, redact_document
from gliner_bento.privacy.redact import (
    Redacted,
    ReplacedText,
    restore_anyway,
    restore_placeholders,
    substituted,
)
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.styles import Replace
from gliner_bento.surrogates import without_escaped_surrogates

_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_JSON_CHAR = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
_CSV_CHAR = re.compile(r'""|.', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Field:
    """A text of a record. column: the column with the text in a Parquet file, else empty.

    label: of a text of a document that is personal data whatever it says, such as an author. place: in a document.
    offsets: position in the record of each character and of the end; None if the text is the whole record.
    """

    text: str
    offsets: Sequence[int] | None = None
    column: str = ""
    label: str = ""
    place: str = ""

    def in_record(self, span: LabeledSpan) -> LabeledSpan:
        """A span of the text as a span of the record."""
        return LabeledSpan(self.offsets[span.start], self.offsets[span.end], span.label) if self.offsets else span


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A text file, a line of JSONL, a row of CSV or of Parquet, with its texts in order.

    line: number of its first line, or of its row, from 1. raw: its lines; of Parquet, the Arrow table of its row group;
        of a document, None.
    """

    line: int
    raw: Any
    fields: Sequence[Field] = ()


def redact_record(record: TextRecord, finds: Sequence[Finds], style: Replace) -> Redacted:
    """Replace what was found in a record, at each of its places there. finds: of each field's text. The result has
    offsets in the redacted record. Raises LimitExceeded."""
    redacted = redact_document([field.text for field in record.fields], finds, style)
    return substituted(
        record.raw,
        [
            (field.in_record(span), replaced.replacement)
            for field, spans, text in zip(record.fields, redacted.spans, redacted.texts, strict=True)
            for span, replaced in zip(spans, text.replacements, strict=True)
        ],
    )


def records_of(
    kind: str,
    lines: Iterable[str],
    columns: Columns,
    invalid: Callable[[int, str], None] | None = None,
    delimiter: str = ",",
) -> Iterator[TextRecord]:
    """The records of a file. lines: with their ends.

    invalid: called with line and fault of an invalid record, which is left out. If it is None, such a record raises
        ValueError.
    """
    header: Sequence[str] = ()
    for record in readers.records(kind, lines, delimiter):
        try:
            if isinstance(record.row, ValueError):
                raise record.row
            if kind == "csv" and record.row is None and record.cells:
                header = record.cells
                columns.check(header)
            fields = [] if record.row is None else _fields(kind, record, columns, header, delimiter)
        except ValueError as error:
            if invalid is None or record.row is None:  # without a header, no record can be read
                raise ValueError(f"line {record.line}: {error}") from None
            invalid(record.line, str(error))
        else:
            yield TextRecord(record.line, record.raw, fields)


def _fields(kind: str, record: readers.Record, columns: Columns, header: Sequence[str], delimiter: str) -> list[Field]:
    if kind == "text":
        return [Field(record.raw)]
    if kind == "jsonl":
        return _json_fields(without_escaped_surrogates(record.raw.encode()).decode(), columns)
    cells = list(_csv_cells(record.raw, delimiter))
    if [cell.text for cell in cells] != record.cells:
        raise ValueError("the quotes are ambiguous, so the row cannot be split into cells")
    named = list(zip(cells, header, strict=True))
    for cell, name in named:
        if cell.text and not columns.takes(name):
            columns.pass_over(name)
    return [cell for cell, name in named if columns.takes(name)]


def _json_fields(line: str, columns: Columns) -> list[Field]:
    """The texts of a line of valid JSON. Each occurrence of a repeated member is a text."""
    fields, keys = [], []
    for value in _json_values(line):
        is_string = line[value.start] == '"'
        if value.is_member:
            keys.append(value.column)
            if value.column in columns.names and not is_string and not line.startswith("null", value.start):
                raise ValueError(f"{value.column}: must be a string or null")
        if is_string and columns.takes(value.column):
            chars = [match.start() for match in _JSON_CHAR.finditer(line, value.start + 1, value.end - 1)]
            fields.append(Field(json.loads(line[value.start : value.end]), [*chars, value.end - 1]))
        elif is_string and value.end > value.start + 2:
            columns.pass_over(value.column, value.path)
    columns.check(keys)
    return fields


class _JsonValue(NamedTuple):
    """`line[start:end]`. column: the member of the record that it is, or is in. path: such as `customer.phones[]`."""

    column: str
    path: str
    start: int
    end: int

    @property
    def is_member(self) -> bool:
        return self.column == self.path


def _json_values(line: str) -> Iterator[_JsonValue]:
    """The values of the record on a line of valid JSON, and the strings inside them, in order. The end of an object or
    array is that of its first character. Not recursive, because a record may be nested deeply."""
    paths: list[str] = []  # of the objects and arrays around the token
    in_array: list[bool] = []
    column = key = ""
    is_key = False  # whether the next string is a key
    for token in _JSON_TOKEN.finditer(line):
        first = token[0][0]
        if first in "]}":
            paths.pop()
            in_array.pop()
        elif first == ",":
            is_key = not in_array[-1]
        elif is_key and first == '"':
            key, is_key = json.loads(token[0]), False
            column = key if len(paths) == 1 else column
        elif first != ":":
            path = _path(paths, key, in_array)
            if len(paths) == 1 or first == '"':
                yield _JsonValue(column, path, *token.span())
            if first in "[{":
                paths.append(path)
                in_array.append(first == "[")
                is_key = first == "{"


def _path(paths: Sequence[str], key: str, in_array: Sequence[bool]) -> str:
    """The path of a value, from those of the objects and arrays around it, of which the first is the record."""
    if len(paths) < 2:
        return key if paths else ""
    return f"{paths[-1]}[]" if in_array[-1] else f"{paths[-1]}.{key}"


def _csv_cells(raw: str, delimiter: str) -> Iterator[Field]:
    """The cells of a valid row, without their quotes."""
    separator = re.escape(delimiter)
    quoted, unquoted = r'"(?:[^"]|"")*"', rf'[^"{separator}\r\n][^{separator}\r\n]*'
    cell = re.compile(rf"({quoted}|{unquoted}|)({separator}|\r\n|\n|\r|$)")
    position = 0
    while match := cell.match(raw, position):
        start, end = match.span(1)
        if match[1].startswith('"'):
            chars = [char.start() for char in _CSV_CHAR.finditer(raw, start + 1, end - 1)]
            yield Field(match[1][1:-1].replace('""', '"'), [*chars, end - 1])
        else:
            yield Field(match[1], range(start, end + 1))
        position = match.end()
        if position == len(raw) and match[2] != delimiter:
            return


class TextFile:
    """A file and its copy. The methods raise ValueError for content that does not have the file's format."""

    def __init__(self, source: Source, out: IO[bytes], options: ReadOptions) -> None:
        self._source, self._options, self._out = source, options, out
        self._mark, self._encoding = byte_order_mark(source, options.encoding)
        self._chars = 0  # written, without the mark
        self.columns = Columns(options.columns, options.kept_columns)
        out.write(self._mark)

    def records(self) -> Iterator[TextRecord]:
        """The records in order."""
        invalid = self._skip if self._options.invalid else None
        delimiter = delimiter_of(self._source)
        return records_of(self._source.kind, self._lines(), self.columns, invalid, delimiter)

    def _skip(self, line: int, reason: str) -> None:
        assert self._options.invalid is not None
        self._options.invalid(f"{self._source.path}: line {line}", reason)

    def _lines(self) -> Iterator[str]:
        """Lines with their ends. Raises ValueError if encoding them again does not give the bytes of the file."""
        original, encoded = hashlib.sha256(), hashlib.sha256(self._mark)
        try:
            with decoded(self._source, self._encoding) as file:
                for line in readers.lines_of(file):
                    encoded.update(self._encoded(line))
                    yield line
        except UnicodeDecodeError as error:
            raise ValueError(not_encoded(error)) from None
        with opened(self._source) as content:
            while piece := content.read(2**20):
                original.update(piece)
        if encoded.digest() != original.digest():
            raise ValueError(f"{self._encoding} does not keep every byte of the file; choose another --encoding")

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise ValueError(f"{error.object[error.start]!r} cannot be written in {self._encoding}") from None

    def redact(self, record: TextRecord, finds: Sequence[Finds], style: Replace) -> list[Entry]:
        """Write the next record; returns its lines of the mapping. finds: of each field. Raises LimitExceeded."""
        redacted = redact_record(record, finds, style)
        self._out.write(self._encoded(redacted.text))
        in_file = [replace(replaced, start=replaced.start + self._chars) for replaced in redacted.replacements]
        self._chars += len(redacted.text)
        return [asdict(replaced) for replaced in in_file]

    def restore(
        self, entries: Sequence[Entry] | None, placeholders: Sequence[ReplacedText], *, unchanged: bool
    ) -> Sequence[str]:
        """Write the original; returns the placeholders that are left, see `Restored`. Raises RestoreError.

        placeholders: those of all files, for a file without entries of its own (None), such as a summary.
        unchanged: see `restore_anyway`.
        """
        text = "".join(self._lines())
        if entries is None:
            restored = restore_placeholders(text, placeholders)
        else:
            restored = restore_anyway(text, [*map(replaced_text, entries)], unchanged=unchanged)
        self._out.write(self._encoded(restored.text))
        return restored.left

    def close(self) -> None:
        """Does nothing: only a Parquet file has an end to write."""
