"""A text, JSONL or CSV file that is redacted, restored or checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

from gliner_bento.files.records.readers import Reading
from gliner_bento.files.records.sources import Source, has_tabs
from gliner_bento.files.redaction.encoding import Decoded
from gliner_bento.files.redaction.records import FORMATS, Record, csv_records, redact_record
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

    def __init__(self, content: IO[bytes], out: IO[bytes], source: Source, reading: Reading) -> None:
        self._decoded = Decoded(content, reading.encoding)
        self._read = csv_records("\t") if has_tabs(source) else FORMATS[source.kind]
        self._reading, self._path = reading, source.path
        self._out = out
        self._chars = 0
        out.write(self._decoded.mark)

    def records(self) -> Iterator[Record]:
        """In order."""
        return self._read(self._decoded.lines(), self._reading.columns, self._skip if self._reading.invalid else None)

    def _skip(self, line: int, reason: str) -> None:
        assert self._reading.invalid is not None
        self._reading.invalid(f"{self._path}: line {line}", reason)

    def redact(self, record: Record, spans: Iterable[Iterable[Span]], style: Replace) -> list[Entry]:
        """Write the next record."""
        redacted = redact_record(record, spans, style)
        self._out.write(self._decoded.encode(redacted.text))
        moved = [replace(one, start=one.start + self._chars) for one in redacted.replacements]
        self._chars += len(redacted.text)
        return [asdict(one) for one in moved]

    def restore(self, entries: Iterable[Entry]) -> None:
        """Write the original. Raises RestoreError."""
        text = "".join(self._decoded.lines())
        self._out.write(self._decoded.encode(restore_anyway(text, [Replacement(**entry) for entry in entries])))

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
