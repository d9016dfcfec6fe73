"""A text, JSONL or CSV file that is redacted, restored or checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

from gliner_bento.files.records.readers import Reading, byte_order_mark, decoded, not_encoded, opened
from gliner_bento.files.records.sources import Source, delimiter_of
from gliner_bento.files.redaction.records import FORMATS, Record, redact_record
from gliner_bento.files.redaction.redact import Replacement, restore_anyway
from gliner_bento.files.redaction.spans import Span
from gliner_bento.files.redaction.styles import Replace

Entry = dict[str, Any]
"""A line of the mapping: a `Replacement`, and where it is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a pattern rule finds in a file. line: or row, of Parquet."""

    line: int
    label: str
    text: str


class TextFile:
    """Its methods raise ValueError for content that is not what the file's name says."""

    def __init__(self, source: Source, out: IO[bytes], reading: Reading) -> None:
        self._source, self._reading, self._out = source, reading, out
        self._mark, self._encoding = byte_order_mark(source, reading.encoding)
        self._chars = 0
        out.write(self._mark)

    def records(self) -> Iterator[Record]:
        """In order."""
        given = {"delimiter": delimiter_of(self._source)} if self._source.kind == "csv" else {}
        skip = self._skip if self._reading.invalid else None
        return FORMATS[self._source.kind](self._lines(), self._reading.columns, skip, **given)

    def _skip(self, line: int, reason: str) -> None:
        assert self._reading.invalid is not None
        self._reading.invalid(f"{self._source.path}: line {line}", reason)

    def _lines(self) -> Iterator[str]:
        """With their ends, `\\n`, `\\r` or `\\r\\n`. Raises ValueError if their bytes in the encoding are others."""
        given, kept = hashlib.sha256(), hashlib.sha256(self._mark)
        try:
            with decoded(self._source, self._encoding) as file:
                for line in file:
                    kept.update(self._encoded(line))
                    yield line
        except UnicodeDecodeError as error:
            raise ValueError(not_encoded(error)) from None
        with opened(self._source) as content:
            while piece := content.read(2**20):
                given.update(piece)
        if kept.digest() != given.digest():
            raise ValueError(f"{self._encoding} does not keep every byte of the file; choose another --encoding")

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise ValueError(f"{error.object[error.start]!r} cannot be written in {self._encoding}") from None

    def redact(self, record: Record, spans: Iterable[Iterable[Span]], style: Replace) -> list[Entry]:
        """Write the next record."""
        redacted = redact_record(record, spans, style)
        self._out.write(self._encoded(redacted.text))
        moved = [replace(one, start=one.start + self._chars) for one in redacted.replacements]
        self._chars += len(redacted.text)
        return [asdict(one) for one in moved]

    def restore(self, entries: Iterable[Entry]) -> None:
        """Write the original. Raises RestoreError."""
        text = "".join(self._lines())
        self._out.write(self._encoded(restore_anyway(text, [Replacement(**entry) for entry in entries])))

    def findings(self, find: Callable[[str], Iterable[Span]]) -> Iterator[Finding]:
        """In every record."""
        line = 1
        for record in self.records():
            for field in record.fields:
                for span in find(field.text):
                    before = record.raw.count("\n", 0, field.placed(span).start)
                    yield Finding(line + before, span.label, field.text[span.start : span.end])
            line += record.raw.count("\n")

    def close(self) -> None:
        """After the last record."""
