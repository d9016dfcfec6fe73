"""Reads records of text, JSONL, CSV and Parquet files one by one, in constant memory, and those of documents.
`redaction` uses the unchanged lines of each record, and so keeps everything that it does not replace."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, NamedTuple

from gliner_bento.documents.base import Document, DocumentError, format_at_start
from gliner_bento.documents.process import DocumentProcess
from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import Row, pyarrow
from gliner_bento.files.records.json_value import json_value
from gliner_bento.files.records.sources import Source, delimiter_of, shown

MAX_RECORD_BYTES = 64 * 2**20
FILE_ERRORS = (OSError, EOFError, zlib.error)
_BATCH_ROWS = 256
_HEAD_BYTES = 8
_UNITS = {"jsonl": "line", "csv": "record", "parquet": "row", "document": "text"}

_MARKS = (  # UTF-32-LE comes before UTF-16-LE, because its mark begins with that of UTF-16-LE
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

csv.field_size_limit(MAX_RECORD_BYTES)


_DOCUMENTS = DocumentProcess()
"""Starts with the first document that is read, and ends with this process."""


class Unreadable(StartupError):
    """A file, or a record of it, cannot be read. The message begins with its location."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read. columns: the columns to redact, or `*` for all. kept_columns: those that are known to need no
    look. encoding: encoding of text without a byte order mark.

    invalid: called with location and error of each invalid record, which is skipped. If it is None, an invalid record
        raises `Unreadable`.
    check: raises ValueError for a record that the caller cannot use.
    not_read: called with the location of each part of a document that is not read, such as an image attached to a
        mail, and with the reason.
    documents: reads documents.
    """

    columns: Sequence[str] = ("text",)
    kept_columns: Sequence[str] = ()
    encoding: str = "utf-8"
    invalid: Callable[[str, str], None] | None = None
    check: Callable[[Source, Row], None] = lambda _source, _row: None
    not_read: Callable[[str, str], None] = lambda _location, _reason: None
    documents: DocumentProcess = _DOCUMENTS


def read(source: Source, start: int = 0, options: ReadOptions = ReadOptions()) -> Iterator[tuple[int, Row]]:
    """Number and content of each record, from number `start` on. Raises `Unreadable`."""
    number = start - 1
    rows = _ROWS.get(source.kind, _text_rows)
    try:
        for number, row in rows(source, start, options):
            if reason := _fault(row, source, options):
                if not options.invalid:
                    raise Unreadable(f"{location_of(source, number)}: {reason}")
                options.invalid(location_of(source, number), reason)
            else:
                yield number, row  # type: ignore[misc]  # `_fault` excludes ValueError
    except UnicodeDecodeError as error:
        raise Unreadable(f"{source.shown}: {not_encoded(error)}") from None
    except DocumentError as error:
        raise Unreadable(f"{source.shown}: {one_line(error)}") from None
    except ValueError as error:  # in the record after the last one that was read
        raise Unreadable(f"{location_of(source, number + 1)}: {one_line(error)}") from None
    except FILE_ERRORS as error:
        raise Unreadable(f"{source.shown}: {getattr(error, 'strerror', None) or one_line(error)}") from None


def _fault(row: Row | ValueError, source: Source, options: ReadOptions) -> str | None:
    """Why a record is invalid; None for a valid one."""
    try:
        if isinstance(row, ValueError):
            raise row
        options.check(source, row)
    except UnicodeEncodeError:
        return f"not {options.encoding}; name its encoding with --encoding"
    except ValueError as error:
        return one_line(error)
    return None


def location_of(source: Source, number: int) -> str:
    """File and line of a record, for messages."""
    unit = _UNITS.get(source.kind)
    return f"{source.shown}: {unit} {number + 1}" if unit else source.shown


def opened(source: Source) -> IO[bytes]:
    """The file, decompressed. Reading it raises `FILE_ERRORS`."""
    return gzip.open(source.path, "rb") if source.gzip else source.path.open("rb")  # type: ignore[return-value]


def byte_order_mark(source: Source, encoding: str) -> tuple[bytes, str]:
    """The byte order mark of a file and its encoding; without a mark, b"" and `encoding`. Raises `DocumentError` for a
    document with the suffix of a text: some encodings read its bytes, which may have names that they do not show."""
    with opened(source) as file:
        head = file.read(_HEAD_BYTES)
    if found := format_at_start(head):
        raise DocumentError(f"is {found}, and not what its suffix says")
    return next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", encoding))


def not_encoded(error: UnicodeDecodeError) -> str:
    """The message for a file with another encoding."""
    return f"not {error.encoding}: {error.reason}; name its encoding with --encoding"


def decoded(source: Source, encoding: str, errors: str = "strict") -> io.TextIOWrapper:
    """The text after the byte order mark. Line ends are kept; in JSONL, only a line feed ends a line.

    encoding: encoding of text without a mark.
    """
    mark, encoding = byte_order_mark(source, encoding)
    file = opened(source)
    file.seek(source.offset or len(mark))
    return io.TextIOWrapper(file, encoding, errors, newline="\n" if source.kind == "jsonl" else "")


def lines_of(file: io.TextIOWrapper) -> Iterator[str]:
    """Lines with their ends. Reads at most `MAX_RECORD_BYTES` + 1 characters of a line; `_check_size` refuses the
    piece of a longer line."""
    return iter(partial(file.readline, MAX_RECORD_BYTES + 1), "")


class Record(NamedTuple):
    """A record of a text, JSONL or CSV file. number: counted from 0. line: number of its first line, from 1.

    raw: its lines, unchanged. row: a ValueError if the record is invalid; None for a blank line and the header of CSV.
    cells: the cells of a row or header of CSV.
    """

    number: int
    line: int
    raw: str
    row: Row | ValueError | None
    cells: Sequence[str] = ()


_Records = Iterator[Record]


def records(kind: str, lines: Iterable[str], delimiter: str) -> _Records:
    """Records of a text, JSONL or CSV file. lines: with their ends. Raises ValueError for a fault that ends reading."""
    return _FORMATS[kind](lines, delimiter)


def _text(lines: Iterable[str], _delimiter: str) -> _Records:
    content, chars = list[str](), 0
    for line in lines:
        chars += len(line)
        _check_size(chars)
        content.append(line)
    text = "".join(content)
    yield Record(0, 1, text, {"text": text})


def _jsonl(lines: Iterable[str], _delimiter: str) -> _Records:
    """Records have the numbers of their lines, blank lines included."""
    for number, line in enumerate(lines):
        yield Record(number, number + 1, line, _object(line) if line.strip() else None)


def _object(line: str) -> Row | ValueError:
    try:
        _check_size(len(line))
        row = json_value(line)
    except ValueError as error:  # a UnicodeEncodeError for a byte that could not be decoded
        return error
    except RecursionError as error:
        return ValueError(str(error))
    return row if isinstance(row, dict) else ValueError("must be a JSON object")


def _csv(lines: Iterable[str], delimiter: str) -> _Records:
    """Rows as in RFC 4180, with any line ends. All must have as many cells as the first one, the header."""
    raw: list[str] = []  # the lines of the current row

    def recorded() -> Iterator[str]:
        for line in lines:
            raw.append(line)
            yield line

    rows = csv.reader(recorded(), delimiter=delimiter, strict=True)
    header: list[str] = []
    number = -1
    while True:
        line = rows.line_num + 1
        cells, fault = _cells(rows)
        if not raw:  # the end of the file
            return
        if line == 1:
            header = cells
            if fault:
                raise ValueError(f"line 1: {fault}")
        elif cells and len(cells) != len(header):
            fault = f"{len(cells)} fields, the header has {len(header)}"
        row: Row | ValueError | None = None
        if fault:
            row = ValueError(f"{fault} (ends at line {rows.line_num})")
        elif line > 1 and cells:
            row = dict(zip(header, cells, strict=True))
        number += row is not None  # neither the header nor a blank line is counted
        yield Record(number, line, "".join(raw), row, cells)
        raw.clear()


def _cells(rows: Any) -> tuple[list[str], str]:
    """Cells and error of the next row of csv's reader; no cells at the end of the file."""
    line = rows.line_num + 1
    try:
        return next(rows, []), ""
    except csv.Error as error:
        if "end of data" in str(error):
            raise ValueError(f"line {line}: a quote is not closed") from None
        if "expected after" in str(error):
            return [], "a quote is inside a cell; put the cell in quotes, and double the quote"
        return [], str(error)


def _check_size(chars: int) -> None:
    if chars > MAX_RECORD_BYTES:
        raise ValueError(f"longer than {MAX_RECORD_BYTES // 2**20} MiB")


_FORMATS: dict[str, Callable[[Iterable[str], str], _Records]] = {"text": _text, "jsonl": _jsonl, "csv": _csv}
_Rows = Iterator[tuple[int, Row | ValueError]]


def _text_rows(source: Source, start: int, options: ReadOptions) -> _Rows:
    errors = "surrogateescape" if source.kind == "jsonl" else "strict"  # undecodable bytes make only their line invalid
    file_column = {"file": shown(source.name)} if source.kind == "text" else {}
    with decoded(source, options.encoding, errors) as file:
        for record in records(source.kind, lines_of(file), delimiter_of(source)):
            if record.row is None:  # a header, or a blank line without cells
                if len(set(record.cells)) < len(record.cells):
                    raise ValueError("two columns of the header have the same name")
            elif record.number >= start:
                row = record.row if isinstance(record.row, ValueError) else file_column | record.row
                yield record.number, row


def _parquet_rows(source: Source, start: int, _options: ReadOptions) -> _Rows:
    with pyarrow().parquet.ParquetFile(source.path) as file:
        first, groups = 0, list(range(file.num_row_groups))
        # Skip row groups that end before `start`. first: number of the next row.
        while groups and first + file.metadata.row_group(groups[0]).num_rows <= start:
            first += file.metadata.row_group(groups.pop(0)).num_rows
        for batch in file.iter_batches(_BATCH_ROWS, groups) if groups else ():
            if first + batch.num_rows > start:
                yield from ((number, row) for number, row in enumerate(batch.to_pylist(), first) if number >= start)
            first += batch.num_rows


def _document_rows(source: Source, start: int, options: ReadOptions) -> _Rows:
    document = read_document(source, options)
    for name, reason in document.not_read.items():
        options.not_read(f"{source.shown}: {name}", reason)
    for number, record in enumerate(document.records[start:], start):
        yield number, {"file": shown(source.name), **record.place, "text": record.text}


def read_document(source: Source, options: ReadOptions) -> Document:
    """The records of a document. Raises `DocumentError`, OSError, and `StartupError` without the extra `documents`."""
    return options.documents.read(document_bytes(source, options), source.path.name, options.encoding)


def document_bytes(source: Source, options: ReadOptions) -> bytes:
    """The content of a document; of a file that is too large only so much that it is refused. Raises OSError."""
    with source.path.open("rb") as file:
        return file.read(options.documents.limits.max_bytes + 1)


_ROWS: dict[str, Callable[[Source, int, ReadOptions], _Rows]] = {"parquet": _parquet_rows, "document": _document_rows}
