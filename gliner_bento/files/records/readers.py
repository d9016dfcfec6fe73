"""Reads the records of a file one after another, in memory that does not depend on the file.

The only reader of CSV, and of a text's encoding; `redaction` uses these parts to keep what it does not replace.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import IO, Any, NamedTuple

import msgspec

from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import Row, pyarrow
from gliner_bento.files.records.sources import Source, delimiter_of

MAX_RECORD_BYTES = 64 * 2**20
FILE_ERRORS = (OSError, EOFError, zlib.error)
_BATCH_ROWS = 256
_UNITS = {"jsonl": "line", "csv": "record", "parquet": "row"}

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(r"\\(?:[^u]|u(?:[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>[dD][89a-fA-F]..)|))", re.DOTALL)

csv.field_size_limit(MAX_RECORD_BYTES)


class Unreadable(StartupError):
    """A file, or a record of it, cannot be read. The message begins with its place."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read. columns: to redact. encoding: of text without a byte order mark.

    invalid: called with the place and the fault of each line of JSONL or CSV that is skipped; None: the first one is an
        error of the file.
    check: raises ValueError for a record that the caller cannot use.
    """

    columns: Sequence[str] = ("text",)
    encoding: str = "utf-8"
    invalid: Callable[[str, str], None] | None = None
    check: Callable[[Source, Row], None] = lambda _source, _row: None


def read(source: Source, start: int = 0, reading: Reading = Reading()) -> Iterator[tuple[int, Row]]:
    """Each record from number `start` on, and its number. Raises `Unreadable`."""
    number = start - 1
    try:
        for number, row in _READERS[source.kind](source, start, reading):
            if reason := _fault(row, source, reading):
                if not reading.invalid:
                    raise Unreadable(f"{place(source, number)}: {reason}")
                reading.invalid(place(source, number), reason)
            else:
                yield number, row  # type: ignore[misc]  # no fault
    except UnicodeDecodeError as error:
        raise Unreadable(f"{source.path}: {not_encoded(error)}") from None
    except ValueError as error:
        raise Unreadable(f"{place(source, number + 1)}: {one_line(error)}") from None
    except FILE_ERRORS as error:
        raise Unreadable(f"{source.path}: {getattr(error, 'strerror', None) or one_line(error)}") from None


def _fault(row: Row | ValueError, source: Source, reading: Reading) -> str | None:
    """Why a record is invalid."""
    try:
        if isinstance(row, ValueError):
            raise row
        reading.check(source, row)
    except UnicodeEncodeError:
        return f"not {reading.encoding}; name its encoding with --encoding"
    except ValueError as error:
        return one_line(error)
    return None


def place(source: Source, number: int) -> str:
    """A record, for people: file and line."""
    unit = _UNITS.get(source.kind)
    return f"{source.path}: {unit} {number + 1}" if unit else str(source.path)


def opened(source: Source) -> IO[bytes]:
    """The file, decompressed. Reading it raises `FILE_ERRORS`."""
    return gzip.open(source.path, "rb") if source.gzip else source.path.open("rb")  # type: ignore[return-value]


def byte_order_mark(source: Source, encoding: str) -> tuple[bytes, str]:
    """The mark that a text begins with, and its encoding; else none, and `encoding`."""
    with opened(source) as file:
        head = file.read(4)
    return next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", encoding))


def not_encoded(error: UnicodeDecodeError) -> str:
    """What to do about a file of another encoding."""
    return f"not {error.encoding}: {error.reason}; name its encoding with --encoding"


def decoded(source: Source, encoding: str, newline: str = "", errors: str = "strict") -> io.TextIOWrapper:
    """The text behind the mark, opened. encoding: of a text without one."""
    mark, encoding = byte_order_mark(source, encoding)
    file = opened(source)
    file.seek(len(mark))
    return io.TextIOWrapper(file, encoding, errors, newline)


def limited_lines(file: io.TextIOWrapper) -> Iterator[str]:
    """Lines with their ends, cut at what a record may have, so that a longer one is invalid and not in memory."""
    return iter(partial(file.readline, MAX_RECORD_BYTES + 1), "")


class JsonLine(NamedTuple):
    """A line as it is written, and its object: a ValueError if it has none, None if it is blank."""

    raw: str
    row: Row | ValueError | None


def json_lines(lines: Iterable[str]) -> Iterator[JsonLine]:
    """Lines of JSONL. lines: with their ends."""
    return (JsonLine(line, _object(line) if line.strip() else None) for line in lines)


def without_halves(line: str) -> str:
    """Valid JSON, as long as `line`, with U+FFFD for halves of surrogate pairs, which no request can have."""
    if not _SURROGATE.search(line):
        return line
    return _ESCAPE.sub(lambda match: "\\ufffd" if match["half"] else match[0], line)


def _object(line: str) -> Row | ValueError:
    try:
        _check_size(line)
        row = msgspec.json.decode(without_halves(line))
    except ValueError as error:  # UnicodeEncodeError: of a byte that `decoded` has escaped
        return error
    except RecursionError as error:
        return ValueError(str(error))
    return row if isinstance(row, dict) else ValueError("must be a JSON object")


class CsvRow(NamedTuple):
    """raw: as it is written. first, last: its lines, from 1. cells: a blank line, and a row with a fault, have none."""

    first: int
    last: int
    raw: str
    cells: list[str]
    fault: str | None


def csv_rows(lines: Iterable[str], delimiter: str) -> Iterator[CsvRow]:
    """Rows as in RFC 4180, with any line ends, as long as the first one, the header. lines: with their ends.

    Raises ValueError for a quote that is not closed, and for a fault of the header.
    """
    raw: list[str] = []
    header: list[str] | None = None

    def taken() -> Iterator[str]:
        for line in lines:
            raw.append(line)
            yield line

    rows = csv.reader(taken(), delimiter=delimiter, strict=True)
    while True:
        first, fault, cells = rows.line_num + 1, None, list[str]()
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                raise ValueError(f"line {first}: a quote is not closed") from None
            is_quote = "expected after" in str(error)
            fault = "a quote is inside a cell; it must be in quotes, and written twice" if is_quote else str(error)
        if header is None:
            header = cells
            if fault:
                raise ValueError(f"line {first}: {fault}")
        elif cells and len(cells) != len(header):
            fault, cells = f"{len(cells)} fields, the header has {len(header)}", []
        yield CsvRow(first, rows.line_num, "".join(raw), cells, fault)
        raw.clear()


_Records = Iterator[tuple[int, Row | ValueError]]
"""A record with its number, or what is wrong with it."""


def _text(source: Source, start: int, reading: Reading) -> _Records:
    if start:
        return
    with decoded(source, reading.encoding) as file:
        content = file.read(MAX_RECORD_BYTES + 1)
    _check_size(content)
    yield 0, {"file": source.name, "text": content}


def _jsonl(source: Source, start: int, reading: Reading) -> _Records:
    """Blank lines are no records, but count as lines."""
    with decoded(source, reading.encoding, "\n", "surrogateescape") as file:
        for number, line in enumerate(json_lines(islice(limited_lines(file), start, None)), start):
            if line.row is not None:
                yield number, line.row


def _csv(source: Source, start: int, reading: Reading) -> _Records:
    with decoded(source, reading.encoding) as file:
        rows = csv_rows(file, delimiter_of(source))
        header = next((row.cells for row in rows), list[str]())
        if len(set(header)) < len(header):
            raise ValueError("two columns of the header have the same name")
        for number, row in enumerate(row for row in rows if row.cells or row.fault):
            if number >= start:
                fault = ValueError(f"{row.fault} (ends at line {row.last})")
                yield number, fault if row.fault else dict(zip(header, row.cells, strict=True))


def _parquet(source: Source, start: int, _reading: Reading) -> _Records:
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


def _check_size(content: str) -> None:
    if len(content) > MAX_RECORD_BYTES:
        raise ValueError(f"longer than {MAX_RECORD_BYTES // 2**20} MiB")


_READERS: dict[str, Callable[[Source, int, Reading], _Records]] = {
    "text": _text,
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
}


def parquet_file(source: Source) -> tuple[int, Any]:
    """Rows and Arrow schema. Raises `Unreadable`."""
    pa = pyarrow()
    try:
        with pa.parquet.ParquetFile(source.path) as file:
            return file.metadata.num_rows, file.schema_arrow
    except (OSError, pa.ArrowInvalid) as error:
        raise Unreadable(f"{source.path}: {one_line(error)}") from None
