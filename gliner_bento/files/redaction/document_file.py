"""A document that is redacted or restored.

The copy of a Word or Excel file is such a file. Of other documents, and of one that cannot be edited safely, the copy
is the redacted text: a file of another format could look redacted, and still have the originals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import IO

from gliner_bento.documents.base import DocumentError, kind_of
from gliner_bento.files.records.readers import ReadOptions, document_bytes
from gliner_bento.files.records.sources import TEXT_SUFFIXES, Source
from gliner_bento.files.redaction.columns import Columns
from gliner_bento.files.redaction.mapping import Entry, replaced_text
from gliner_bento.files.redaction.text_file import Field, TextRecord
from gliner_bento.privacy.conversation import Finds, redact_document
from gliner_bento.privacy.redact import PlaceholderOriginals, Redacted, ReplacedText
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.styles import Replace

TEXT_SUFFIX = ".txt"
_EDITED = ("docx", "xlsx")
_SEPARATOR = "\n\n"


def is_text_copy(source: Source, target: Source) -> bool:
    """Whether a document's copy is a text whatever the document has in it."""
    return kind_of(source.path.name) not in _EDITED or target.path.suffix.lower() in TEXT_SUFFIXES


def text_target(target: Source) -> Source:
    """The copy with a text: `a.pdf.txt` for `a.pdf`."""
    path = target.path
    if path.suffix.lower() not in TEXT_SUFFIXES:
        path = path.with_name(path.name + TEXT_SUFFIX)
    return replace(target, path=path, kind="text")


class DocumentFile:
    """Like `TextFile`, with the whole document as one record. A value that is found in one of its texts is replaced in
    all of them.

    as_text: whether the copy is a text. reason: why, if the document is a Word or Excel file.
    """

    def __init__(self, source: Source, out: IO[bytes], options: ReadOptions, target: Source | None) -> None:
        self._source, self._out, self._options = source, out, options
        self.columns = Columns(())
        self.as_text = target is not None and is_text_copy(source, target)
        self.reason = ""
        self._content = document_bytes(source, options)
        self._fields = self._read()

    def _read(self) -> list[Field]:
        name = self._source.path.name
        if kind_of(name) not in _EDITED:
            document = self._options.documents.read(self._content, name, self._options.encoding)
            for part, reason in document.not_read.items():
                self.columns.pass_over(f"{part}: {reason}")
            return [Field(record.text, place=_place(record.place)) for record in document.records]
        listing = self._options.documents.passages(self._content, name)
        for part in listing.unseen:
            self.columns.pass_over(part)
        if listing.unsafe:
            self.as_text, self.reason = True, listing.unsafe
        return [Field(one.text, label=one.label, place=one.part) for one in listing.passages]

    def records(self) -> Iterator[TextRecord]:
        """The document."""
        yield TextRecord(1, None, self._fields)

    def redact(self, record: TextRecord, finds: Sequence[Finds], style: Replace) -> list[Entry]:
        """Write the copy; returns its lines of the mapping. finds: of each text. Raises ValueError, LimitExceeded."""
        texts = [field.text for field in record.fields]
        redacted = redact_document(texts, finds, style)
        if not self.as_text:
            try:
                return self._edited(redacted.texts, redacted.spans)
            except DocumentError as error:
                self.as_text, self.reason = True, str(error)
        return self._written(redacted.texts)

    def _edited(self, texts: Sequence[Redacted], spans: Sequence[Sequence[LabeledSpan]]) -> list[Entry]:
        edits = {
            index: [
                (span.start, span.end, replaced.replacement)
                for span, replaced in zip(of_text, text.replacements, strict=True)
            ]
            for index, (of_text, text) in enumerate(zip(spans, texts, strict=True))
            if of_text
        }
        self._out.write(self._options.documents.edited(self._content, self._source.path.name, edits))
        return [
            {"passage": index, **asdict(replaced)} for index, text in enumerate(texts) for replaced in text.replacements
        ]

    def _written(self, texts: Sequence[Redacted]) -> list[Entry]:
        entries: list[Entry] = []
        chars = 0
        for text in texts:
            entries += [asdict(replace(replaced, start=replaced.start + chars)) for replaced in text.replacements]
            chars += len(text.text) + len(_SEPARATOR)
        self._out.write(_SEPARATOR.join(text.text for text in texts).encode())
        return entries

    def restore(
        self, entries: Sequence[Entry] | None, placeholders: Sequence[ReplacedText], *, unchanged: bool
    ) -> Sequence[str]:
        """See `TextFile.restore`. Equal names get the form of the first, and the format of the placeholder."""
        del unchanged  # a restored file never has the bytes of the original
        if kind_of(self._source.path.name) not in _EDITED:
            raise ValueError("is no redacted copy: that of such a document is a text")
        if self.reason:
            raise ValueError(self.reason)
        originals = PlaceholderOriginals(placeholders if entries is None else map(replaced_text, entries))
        edits = {index: found for index, field in enumerate(self._fields) if (found := [*originals.found(field.text)])}
        self._out.write(self._options.documents.edited(self._content, self._source.path.name, edits))
        return [placeholder for field in self._fields for placeholder in originals.left(field.text)]

    def close(self) -> None:
        """Does nothing: the copy is written as a whole."""


def _place(place: dict[str, object]) -> str:
    """The place of a text in one line: `page 3`, `photo.pdf, page 1`."""
    shown = {**place, "part": None if {"page", "cell"} & place.keys() else place["part"]}
    words = (f"page {value}" if name == "page" else str(value) for name, value in shown.items() if value is not None)
    return ", ".join(words)
