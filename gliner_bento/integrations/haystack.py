"""A Haystack component that adds entities and relations to the `meta` of documents."""

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
    """Calls a server, and adds `entities` and `relations` (lists, as in the API) to the `meta` of documents.

    options: the other fields of a request (`relations`, `threshold`, ...). The API key is the environment variable
    `GLINER_CLIENT_API_KEY`.
    """

    def __init__(self, labels: Labels, url: str = "http://localhost:3000", options: Mapping[str, Any] | None = None):
        self.labels, self.url, self.options = labels, url, dict(options or {})

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Copies of the documents with the results; without content, these are empty. Raises a document's error."""
        with Client(self.url) as client:
            results = list(client.extract_many((doc.content or "" for doc in documents), self.labels, **self.options))
        if error := next((result.error for result in results if result.error), None):
            raise from_detail(error)
        columns = (result_columns(result.result or Extraction(())) for result in results)
        pairs = zip(documents, columns, strict=True)
        return {"documents": [replace(doc, meta={**doc.meta, **added}) for doc, added in pairs]}

    def to_dict(self) -> dict[str, Any]:
        """The component's entry in a pipeline's YAML."""
        data: dict[str, Any] = default_to_dict(self, labels=self.labels, url=self.url, options=self.options)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GLiNERExtractor:
        """The component of an entry in a pipeline's YAML."""
        extractor: GLiNERExtractor = default_from_dict(cls, data)
        return extractor
