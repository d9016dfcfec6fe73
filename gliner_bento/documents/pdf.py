"""Texts of a PDF: its pages, comments and form fields."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pypdf import PdfReader
from pypdf.errors import DependencyError, LimitReachedError

from gliner_bento.documents.base import Collector, DocumentError, DocumentTooLarge

_HYPHEN = re.compile("(?<=[^\\W\\d_])(?:-[ \\t]*\\n[ \\t]*(?=[a-zß-öø-ÿ])|\u00ad[ \\t]*\\n[ \\t]*)")
"""A hyphen at the end of a line inside a word: the next line goes on in lower case, or the hyphen is a soft one."""
_NUMBER = re.compile(r"\d+")
_MAX_EDGE_LINES = 3
"""Lines at the top and at the bottom of a page that may be its header and footer."""
_MIN_PAGES = 3
_MAX_ANNOTATIONS = 10_000


def read_pdf(content: bytes, collector: Collector, *, attachment: str | None = None) -> None:
    """Add a record per page, of its header and footer if other pages have them too, per comment and form field.

    Raises `DocumentError`, and any error of pypdf.
    """
    try:
        _read(content, collector, attachment)
    except LimitReachedError as error:
        raise DocumentTooLarge(f"exceeds a limit of pypdf: {error}") from None


def _read(content: bytes, collector: Collector, attachment: str | None) -> None:
    reader = PdfReader(io.BytesIO(content), strict=False)
    _decrypt(reader)
    if len(reader.pages) > collector.limits.max_pages:
        raise DocumentTooLarge(f"has more than {collector.limits.max_pages:,} pages")
    texts, annotations = [], []
    chars = 0
    for page in reader.pages:
        texts.append(joined_hyphens(page.extract_text().replace("\r\n", "\n").replace("\x00", "")).strip("\n"))
        annotations.append(list(_annotations(page)))
        chars += len(texts[-1])
        if chars > collector.limits.max_chars:
            raise DocumentTooLarge(f"has more than {collector.limits.max_chars:,} characters")
    if not any(map(str.strip, texts)) and not any(annotations):
        raise DocumentError("has no text: a scan, or empty")
    for number, (page, header, body, footer) in enumerate(zip(reader.pages, *_split(texts), strict=True), 1):
        place: dict[str, Any] = {"page": number, "attachment": attachment}
        for text, part in ((header, "header"), (body, "page"), (footer, "footer")):
            if text or part == "page":
                collector.add(text, part, **place)
        for text, part in annotations[number - 1]:
            collector.add(text, part, **place)
        name = f"{attachment}: page {number}" if attachment else f"page {number}"
        _note_not_read(page, texts[number - 1], name, collector)


def joined_hyphens(text: str) -> str:
    """The text with words joined that a hyphen divides at the end of a line."""
    return _HYPHEN.sub("", text)


def _decrypt(reader: PdfReader) -> None:
    """Raise `DocumentError` for a file that needs a password."""
    if not reader.is_encrypted:
        return
    try:
        if reader.decrypt(""):
            return
    except (DependencyError, NotImplementedError):
        pass
    raise DocumentError("encrypted")


def _annotations(page: Any) -> Iterator[tuple[str, str]]:
    """The texts of comments and form fields, each with its kind."""
    for reference in _references(page)[:_MAX_ANNOTATIONS]:
        annotation = reference.get_object()
        if not hasattr(annotation, "get"):
            continue
        is_field = annotation.get("/Subtype") == "/Widget"
        value = annotation.get("/V") if is_field else annotation.get("/Contents")
        if is_field and value is None and (parent := annotation.get("/Parent")) is not None:
            value = parent.get_object().get("/V")
        if isinstance(value, str) and value.strip() and not value.startswith("/"):
            yield value, "field" if is_field else "comment"


def _note_not_read(page: Any, text: str, name: str, collector: Collector) -> None:
    if not text.strip() and "/XObject" in (page.get("/Resources") or {}):
        collector.not_read(name, "has no text: a scan")
    if len(_references(page)) > _MAX_ANNOTATIONS:
        collector.not_read(f"{name}: comments and fields", f"are more than {_MAX_ANNOTATIONS:,}")


def _references(page: Any) -> Sequence[Any]:
    annotations = page.get("/Annots")
    annotations = annotations.get_object() if annotations is not None else ()
    return list(annotations or ())


def _split(pages: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Headers, bodies and footers of all pages. A line at an edge is one of them if a fifth of the pages, at least
    `_MIN_PAGES`, have it there, whatever the numbers in it."""
    lines = [page.split("\n") for page in pages]
    tops = [_edge(page) for page in lines]
    bottoms = [_edge(page[::-1]) for page in lines]
    needed = max(_MIN_PAGES, -(-sum(bool(page.strip()) for page in pages) // 5))
    repeated_tops, repeated_bottoms = _repeated(tops, needed), _repeated(bottoms, needed)
    starts = [_length(top, repeated_tops) for top in tops]
    ends = [
        max(start, len(page) - _length(bottom, repeated_bottoms))
        for page, start, bottom in zip(lines, starts, bottoms, strict=True)
    ]
    return (
        ["\n".join(page[:start]) for page, start in zip(lines, starts, strict=True)],
        ["\n".join(page[start:end]) for page, start, end in zip(lines, starts, ends, strict=True)],
        ["\n".join(page[end:]) for page, end in zip(lines, ends, strict=True)],
    )


_Edge = list[tuple[int, str]]
"""Lines at an edge of a page: the number of lines up to the end of it, and what is compared."""


def _edge(lines: Sequence[str]) -> _Edge:
    with_text = [(number, line) for number, line in enumerate(lines, 1) if line.strip()][:_MAX_EDGE_LINES]
    return [(number, _NUMBER.sub("#", " ".join(line.split()))) for number, line in with_text]


def _repeated(edges: Sequence[_Edge], needed: int) -> set[str]:
    counts = Counter(line for edge in edges for line in {compared for _, compared in edge})
    return {line for line, count in counts.items() if count >= needed}


def _length(edge: _Edge, repeated: set[str]) -> int:
    """How many lines at an edge are a header or footer."""
    length = 0
    for number, line in edge:
        if line not in repeated:
            break
        length = number
    return length
