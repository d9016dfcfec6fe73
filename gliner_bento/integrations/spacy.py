"""A spaCy pipeline component, `gliner_bento`: entities and relations from a server.

    nlp.add_pipe("gliner_bento", config={"labels": ["person", "city"]})

`doc.spans["gliner_bento"]` has all entities, and their scores in `attrs["scores"]`, as with spaCy's spancat;
`doc.ents` has entities that do not overlap; `doc._.relations` has the relations (`tasks.extraction.Relation`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, SpanGroup
from spacy.util import filter_spans

from gliner_bento.client import Client
from gliner_bento.errors import from_detail
from gliner_bento.tasks.extraction import Extraction

SPANS_KEY = "gliner_bento"


class GLiNERBento:
    """The component. Entities are extended to whole tokens. The API key is the variable `GLINER_CLIENT_API_KEY`."""

    def __init__(self, url: str, labels: Any, options: dict[str, Any]) -> None:
        self._url, self._labels, self._options = url, labels, options
        if not Doc.has_extension("relations"):
            Doc.set_extension("relations", default=())

    def __call__(self, doc: Doc) -> Doc:
        """Annotate one doc. Raises the server's error."""
        with Client(self._url) as client:
            return self._annotated(doc, client.extract(doc.text, self._labels, **self._options))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 512) -> Iterator[Doc]:
        """Annotate docs in order, for `nlp.pipe`. Raises a text's error. batch_size: about how many docs
        may wait for their results."""
        waiting: deque[Doc] = deque()

        def texts() -> Iterator[str]:
            for doc in stream:
                waiting.append(doc)
                yield doc.text

        with Client(self._url) as client:
            for outcome in client.extract_many(texts(), self._labels, window=batch_size, **self._options):
                if outcome.error:
                    raise from_detail(outcome.error)
                yield self._annotated(waiting.popleft(), outcome.result or Extraction(()))

    @staticmethod
    def _annotated(doc: Doc, result: Extraction) -> Doc:
        spans = [
            doc.char_span(entity.start, entity.end, entity.label, alignment_mode="expand") for entity in result.entities
        ]
        scores = [entity.score for entity in result.entities]
        doc.spans[SPANS_KEY] = SpanGroup(doc, name=SPANS_KEY, spans=spans, attrs={"scores": scores})
        doc.ents = filter_spans([*spans, *doc.ents])
        doc._.relations = tuple(result.relations)
        return doc


@Language.factory("gliner_bento", default_config={"url": "http://localhost:3000", "relations": None, "options": {}})
def make_component(nlp: Language, name: str, url: str, labels: Any, relations: Any, options: Any) -> GLiNERBento:
    """Make the component. labels, relations, options (`threshold`, `adapter_id`, ...): the fields of a request."""
    fields = {"relations": relations} if relations else {}
    return GLiNERBento(url, labels, {**fields, **options})
