"""Documents of a graph: results that were extracted before, or texts whose results are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gliner_bento.exits import StartupError
from gliner_bento.records.readers import place, read
from gliner_bento.records.sources import sources, text_column

Document = str | Mapping[str, Any]
"""A text, or a row that has `entities` and `relations`."""


def read_documents(inputs: Sequence[str], column: str, output: Path) -> Iterator[tuple[str, Document]]:
    """Place and content of each document. column: of the text in rows without entities. Raises `StartupError`.

    output: is no input, where it is in a folder.
    """
    for source in sources(inputs, [output]):
        name = text_column(source, column)
        for number, row in read(source):
            if "entities" in row:
                yield place(source, number), row
            elif name in row and isinstance(row[name], str | None):
                yield place(source, number), row[name] or ""
            else:
                raise StartupError(f"{place(source, number)}: has neither 'entities' nor a text {column!r}")
