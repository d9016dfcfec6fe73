"""A Haystack component: documents in, the same documents with entities and relations in their `meta` out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from haystack import Document, component, default_to_dict
from haystack.core.serialization import default_from_dict

from gliner_bento.client import Client
from gliner_bento.client.calls import Labels
from gliner_bento.errors import from_detail
from gliner_bento.files.records.columns import result_columns
from gliner_bento.tasks.extraction import Extraction


@component
class GLiNERExtractor:
    """Adds `entities` and `relations`, lists as in the API, to the `meta` of documents, by a server.

    options: the other fields of a request (`relations`, `threshold`, ...). The API key is the environment's
    `GLINER_CLIENT_API_KEY`.
    """

    def __init__(self, labels: Labels, url: str = "http://localhost:3000", options: Mapping[str, Any] | None = None):
        self.labels, self.url, self.options = labels, url, dict(options or {})

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Documents without content have no entities. Raises the server's error for a text."""
        with Client(self.url) as client:
            results = list(client.extract_many((one.content or "" for one in documents), self.labels, **self.options))
        if error := next((one.error for one in results if one.error), None):
            raise from_detail(error)
        found = zip(documents, (result_columns(one.result or Extraction(())) for one in results), strict=True)
        return {"documents": [replace(one, meta={**one.meta, **columns}) for one, columns in found]}

    def to_dict(self) -> dict[str, Any]:
        """For a pipeline's YAML."""
        made: dict[str, Any] = default_to_dict(self, labels=self.labels, url=self.url, options=self.options)
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GLiNERExtractor:
        """From a pipeline's YAML."""
        made: GLiNERExtractor = default_from_dict(cls, data)
        return made
