"""Documents of a graph: results that were extracted before, or texts whose results are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gliner_bento.files.records.columns import Row
from gliner_bento.files.records.readers import Reading, place, read
from gliner_bento.files.records.sources import Source, text_column

Document = str | Mapping[str, Any]
"""A text, or a row that has `entities` and `relations`."""


def check_document(source: Source, row: Row, column: str) -> None:
    """Raises ValueError for a row that is no document. column: of the text in rows without entities."""
    if "entities" not in row and not isinstance(row.get(text_column(source, column), 0), str | None):
        raise ValueError(f"has neither 'entities' nor a text {column!r}")


def read_documents(files: Iterable[Source], column: str, reading: Reading) -> Iterator[tuple[str, Document]]:
    """Place and content of each document, which `check_document` has accepted."""
    for source in files:
        name = text_column(source, column)
        for number, row in read(source, 0, reading):
            yield place(source, number), row if "entities" in row else row[name] or ""
