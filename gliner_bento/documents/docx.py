"""Texts of a Word file: body, headers, footers, comments, notes, drawings."""

from __future__ import annotations

from collections.abc import Iterator

from gliner_bento.documents.base import Collector
from gliner_bento.documents.package import Package
from gliner_bento.documents.passages import passages_of

PARTS = {
    **{"header": "header", "footer": "footer", "comments": "comment", "footnotes": "footnote", "endnotes": "endnote"},
    **{"diagramData": "drawing", "chart": "drawing"},
}
"""Kinds of linked parts that a reader sees."""


def read_docx(package: Package, collector: Collector, *, attachment: str | None = None) -> None:
    """Add a record for the body, each header and footer, comment, note and drawing. Raises `DocumentError`."""
    for name, part in visible_parts(package):
        for passage in passages_of(package.tree(name), part)[0]:
            collector.add(passage.text, part, attachment=attachment)


def visible_parts(package: Package) -> Iterator[tuple[str, str]]:
    """Name and kind of each part that a reader sees, in order."""
    yield package.main, "body"
    linked = {relationship.target: relationship.kind for relationship in package.relationships(package.main)}
    for name, kind in linked.items():
        if kind in PARTS and name in package.parts:
            yield name, PARTS[kind]
