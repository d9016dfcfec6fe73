"""What is read of a document: its records, the limits, and the errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

from gliner_bento.errors import install_hint

SUFFIXES = {".pdf": "pdf", ".docx": "docx", ".xlsx": "xlsx", ".html": "html", ".htm": "html", ".eml": "eml"}
"""The format of each suffix."""
PACKAGES = ("lxml", "pypdf")
EXTRA = "documents"
PDF_MARK = b"%PDF-"

_ARCHIVES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_MAX_NAME_CHARS = 255
_FREE_PLACE_CHARS = 100
"""Places of records count as characters, less this number each. That of a cell in a file in a mail has fewer."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class DocumentError(ValueError):
    """A document, or a part of it, cannot be read; the message says why, on one line."""


class DocumentTooLarge(DocumentError):
    """A document exceeds a limit, or takes more time or memory than it may."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a document may be, and what reading it may take.

    max_bytes: of the file. max_unpacked_bytes: of all parts of a Word or Excel file. max_pages: of a PDF. max_chars,
    max_records: of what is read. max_depth: of messages inside messages. max_parts: of a mail, or a Word or Excel file.
    max_cpu_s, max_memory_bytes: of the process, for one document.
    """

    max_bytes: int = 64 * 2**20
    max_unpacked_bytes: int = 256 * 2**20
    max_pages: int = 5_000
    max_chars: int = 16 * 2**20
    max_records: int = 200_000
    max_depth: int = 5
    max_parts: int = 5_000
    max_cpu_s: float = 60.0
    max_memory_bytes: int = 2**30


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A text of a document, and its place.

    part: what it is: `page`, `header`, `footer`, `body`, `comment`, `footnote`, `endnote`, `cell`, `headers` (of a
        mail), `title`, `field` (of a form).
    page: of a PDF, from 1. sheet, cell: of an Excel file. attachment: its name in a mail; names are joined by `/`.
    """

    text: str
    part: str
    page: int | None = None
    sheet: str | None = None
    cell: str | None = None
    attachment: str | None = None

    @property
    def place(self) -> dict[str, Any]:
        """The place, without what does not apply."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "text"}


@dataclass(slots=True)
class Document:
    """What was read. not_read: parts that have no record, such as attachments of other formats, and why."""

    records: list[DocumentRecord] = field(default_factory=list)
    not_read: dict[str, str] = field(default_factory=dict)


Edit = tuple[int, int, str]
"""Characters [start, end) of a passage, and what replaces them."""


@dataclass(frozen=True, slots=True)
class ListedPassage:
    """A passage as other processes know it. See `passages.Passage`."""

    text: str
    part: str
    label: str = ""


@dataclass(slots=True)
class Listing:
    """The passages of a file, in order. unseen: parts that nobody looks at, such as images. unsafe: why the file cannot
    be edited; empty if it can."""

    passages: list[ListedPassage] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    unsafe: str = ""


class Collector:
    """Collects the records of a document within its limits. depth: the number of messages around what is read."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.depth = 0
        self.document = Document()
        self._chars = 0

    def add(self, text: str, part: str, **place: Any) -> None:
        """Add a record. Raises `DocumentError` beyond a limit."""
        place_chars = sum(len(value) for value in place.values() if isinstance(value, str))
        self._chars += len(text) + max(0, place_chars - _FREE_PLACE_CHARS)
        if self._chars > self.limits.max_chars:
            raise DocumentTooLarge(f"has more than {self.limits.max_chars:,} characters")
        if len(self.document.records) >= self.limits.max_records:
            raise DocumentTooLarge(f"has more than {self.limits.max_records:,} texts")
        self.document.records.append(DocumentRecord(whole(text), part, **place))

    def not_read(self, name: str, reason: str) -> None:
        """Note a part that has no record."""
        if len(self.document.not_read) < self.limits.max_parts:
            self.document.not_read[whole(name)] = whole(reason)


def whole(text: str) -> str:
    """The text as Unicode: halves of surrogate pairs are replaced."""
    return _SURROGATES.sub("\ufffd", text)


def cut(name: str) -> str:
    """A name for places, which many records repeat: with at most 255 characters, and its suffix."""
    if len(name) <= _MAX_NAME_CHARS:
        return name
    stem, suffix = os.path.splitext(name)
    return (stem[: max(0, _MAX_NAME_CHARS - len(suffix))] + suffix)[:_MAX_NAME_CHARS]


def kind_of(name: str) -> str | None:
    """The format of a file by the suffix of its name; None if it is no document."""
    return SUFFIXES.get(os.path.splitext(name)[1].lower())


def format_at_start(head: bytes) -> str:
    """The format that the first bytes of a file show: PDF, or Office of any age; empty for any other."""
    if head.startswith(_ARCHIVES):
        return "an Office file or an archive"
    return "a PDF" if head.startswith(PDF_MARK) else ""


def missing_packages() -> Iterator[str]:
    """The packages of the extra that are not installed."""
    return (name for name in PACKAGES if find_spec(name) is None)


def install_documents() -> str:
    """What to install; empty if everything is there."""
    missing = " and ".join(missing_packages())
    return f"{', '.join(SUFFIXES)} need {missing}; {install_hint(EXTRA)}" if missing else ""
