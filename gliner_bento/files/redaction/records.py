"""Records of text files: where the texts are in a line of JSON or CSV, so that everything else is kept as it is.

A replacement (`styles.py`) has only letters, digits and `[]_*`, which neither JSON nor CSV escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]

from gliner_bento.files.records.readers import csv_rows
from gliner_bento.files.redaction.redact import Redacted, redactions, substituted
from gliner_bento.files.redaction.spans import Span
from gliner_bento.files.redaction.styles import Replace

Records = Iterator["Record"]
Skip = Callable[[int, str], None]
"""Called with the number and the fault of a line that is left out."""

_SPACE = re.compile(r"[ \t\r\n]*")
_JSON_CHAR = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
_CSV_CHAR = re.compile(r'""|.', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Field:
    """A text of a record. places: where each character and the end are in the record; None: the text is the record."""

    text: str
    places: Sequence[int] | None = None

    def placed(self, span: Span) -> Span:
        """A span of the text, in the record."""
        return Span(self.places[span.start], self.places[span.end], span.label) if self.places else span


@dataclass(frozen=True, slots=True)
class Record:
    """A text file, a line of JSONL or a row of CSV, as it is written, with its texts in order."""

    raw: str
    fields: Sequence[Field] = ()


def redact_record(record: Record, spans: Iterable[Iterable[Span]], replace: Replace) -> Redacted:
    """Replace the spans, which are given per field. Offsets of the result are those of the record."""
    return substituted(
        record.raw,
        [
            (field.placed(span), replacement)
            for field, found in zip(record.fields, spans, strict=True)
            for span, replacement in redactions(field.text, found, replace)
        ],
    )


def text_records(lines: Iterable[str], _columns: Sequence[str], _skip: Skip | None = None) -> Records:
    """The whole file."""
    text = "".join(lines)
    yield Record(text, [Field(text)])


def jsonl_records(lines: Iterable[str], columns: Sequence[str], skip: Skip | None = None) -> Records:
    """Each line; blank ones have no text. Without `skip`, an invalid one raises ValueError with its number."""
    for number, line in enumerate(lines, 1):
        try:
            yield Record(line, _json_fields(line, columns) if line.strip() else [])
        except (ValueError, IndexError) as error:
            reason = f"invalid JSON: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
            _skip_or_raise(number, reason, skip)


def _skip_or_raise(line: int, reason: str, skip: Skip | None) -> None:
    if skip is None:
        raise ValueError(f"line {line}: {reason}") from None
    skip(line, reason)


def _json_fields(line: str, columns: Sequence[str]) -> list[Field]:
    if not isinstance(json.loads(line), dict):
        raise ValueError("must be a JSON object")
    fields, seen = [], []
    for key, start, end in _members(line):
        if key not in columns or line.startswith("null", start):
            seen.append(key)
            continue
        if line[start] != '"':
            raise ValueError(f"{key}: must be a string or null")
        seen.append(key)
        chars = [match.start() for match in _JSON_CHAR.finditer(line, start + 1, end - 1)]
        fields.append(Field(json.loads(line[start:end]), [*chars, end - 1]))
    _check_columns(seen, columns)
    return fields


def _members(line: str) -> Iterator[tuple[str, int, int]]:
    """Key, and first and last place of the value, of each member of the object on a line of valid JSON."""
    decoder = json.JSONDecoder()
    position = line.index("{")
    while line[position] != "}":
        position = _after_space(line, position + 1)
        if line[position] == "}":  # {}
            return
        key, position = scanstring(line, position + 1)
        start = _after_space(line, _after_space(line, position) + 1)
        _, end = decoder.raw_decode(line, start)
        yield key, start, end
        position = _after_space(line, end)


def _after_space(line: str, position: int) -> int:
    match = _SPACE.match(line, position)
    return match.end() if match else position


def csv_records(
    lines: Iterable[str], columns: Sequence[str], skip: Skip | None = None, delimiter: str = ","
) -> Records:
    """Rows of CSV, the first with the names of the columns; as `jsonl_records`."""
    special = re.escape(delimiter)
    cell = re.compile(rf'("(?:[^"]|"")*"|[^"{special}\r\n][^{special}\r\n]*|)({special}|\r\n|\n|\r|$)')
    names: list[str] | None = None
    for row in csv_rows(lines, delimiter):
        cells = list(_csv_cells(cell, row.raw, delimiter)) if row.cells else []
        fault = row.fault
        if not fault and [text for text, _ in cells] != row.cells:
            fault = "where its cells begin is ambiguous"
        if names is None:
            if fault:
                _skip_or_raise(row.first, fault, None)
            names = row.cells
            _check_columns(names, columns)
            yield Record(row.raw)
            continue
        if not fault and cells and len(cells) != len(names):
            fault = f"has {len(cells)} cells, and the header has {len(names)}"
        if fault:
            _skip_or_raise(row.first, fault, skip)
        else:
            yield Record(row.raw, [Field(*one) for one, name in zip(cells, names, strict=False) if name in columns])


def _csv_cells(cell: re.Pattern[str], raw: str, delimiter: str) -> Iterator[tuple[str, list[int]]]:
    """Text and places of each cell of a row that `csv_rows` could read."""
    position = 0
    while match := cell.match(raw, position):
        start, end = match.span(1)
        if match[1].startswith('"'):
            chars = [char.start() for char in _CSV_CHAR.finditer(raw, start + 1, end - 1)]
            yield match[1][1:-1].replace('""', '"'), [*chars, end - 1]
        else:
            yield match[1], [*range(start, end + 1)]
        position = match.end()
        if position == len(raw) and match[2] != delimiter:
            return


def _check_columns(names: Sequence[str], columns: Sequence[str]) -> None:
    if missing := [name for name in columns if name not in names]:
        there = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"no column {missing[0]!r}; there are {there}: choose with --columns")


FORMATS: dict[str, Callable[..., Records]] = {
    "text": text_records,
    "jsonl": jsonl_records,
    "csv": csv_records,
}
"""Reader of records by the kind of the file."""
