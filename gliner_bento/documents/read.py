"""Reads a document of any format, in this process. `process.py` does it in another one, within limits."""

from __future__ import annotations

from gliner_bento.documents.base import (
    DEFAULT_LIMITS,
    PDF_MARK,
    SUFFIXES,
    Collector,
    Document,
    DocumentError,
    DocumentTooLarge,
    Limits,
    format_at_start,
    kind_of,
)
from gliner_bento.documents.docx import read_docx
from gliner_bento.documents.html import read_html
from gliner_bento.documents.mail import read_mail
from gliner_bento.documents.package import Package
from gliner_bento.documents.pdf import read_pdf
from gliner_bento.documents.xlsx import read_xlsx

_PDF_HEAD_BYTES = 1024


def document_of(content: bytes, name: str, limits: Limits = DEFAULT_LIMITS, encoding: str = "utf-8") -> Document:
    """The records of a document. name: its suffix is the format. encoding: of HTML that does not name its own.

    Raises `DocumentError`, and for damaged files any error of a parser.
    """
    collector = Collector(limits)
    _add(name, content, collector, None, encoding)
    if not any(record.text.strip() for record in collector.document.records) and not collector.document.not_read:
        raise DocumentError("has no text")
    return collector.document


def checked_kind(name: str, content: bytes, limits: Limits) -> str:
    """The format. Raises `DocumentError` if the content is too large, empty or of another format than the suffix."""
    kind = kind_of(name)
    if kind is None:
        raise DocumentError(f"is none of {', '.join(SUFFIXES)}")
    if len(content) > limits.max_bytes:
        raise DocumentTooLarge(f"has more than {limits.max_bytes // 2**20} MiB")
    if not content.strip():
        raise DocumentError("is empty")
    found = _format(content)
    if found and kind not in found[1]:
        raise DocumentError(f"is {found[0]}, and not what its suffix says")
    if not found and kind in ("pdf", "docx", "xlsx"):
        raise DocumentError(f"damaged, or no {kind.upper() if kind == 'pdf' else f'.{kind}'}")
    return kind


def package_of(content: bytes, kind: str, limits: Limits) -> Package:
    """The parts of a Word or Excel file. Raises `DocumentError`."""
    package = Package(content, limits)
    if package.kind != kind:
        found = f"a .{package.kind}" if package.kind else "neither a .docx nor an .xlsx"
        raise DocumentError(f"is {found}, and not what its suffix says")
    return package


def _format(content: bytes) -> tuple[str, tuple[str, ...]] | None:
    """What the first bytes show: its name, and the formats that begin like this."""
    found = format_at_start(content)
    if found and not content.startswith(PDF_MARK):
        return found, ("docx", "xlsx")
    if PDF_MARK in content[:_PDF_HEAD_BYTES]:
        return "a PDF", ("pdf", "eml") if not content.lstrip().startswith(PDF_MARK) else ("pdf",)
    return None


def _add(name: str, content: bytes, collector: Collector, attachment: str | None, encoding: str = "utf-8") -> None:
    kind = checked_kind(name, content, collector.limits)
    if kind == "pdf":
        read_pdf(content, collector, attachment=attachment)
    elif kind == "html":
        read_html(content, collector, encoding=encoding, attachment=attachment)
    elif kind == "eml":
        read_mail(content, collector, _add, attachment=attachment)
    else:
        package = package_of(content, kind, collector.limits)
        (read_docx if kind == "docx" else read_xlsx)(package, collector, attachment=attachment)
