"""Builds a graph of many documents: rows that have entities already, or texts that a model has to read.

Entities are merged by label and normalized name. Needs networkx.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gliner_bento.files.records.columns import Row
from gliner_bento.files.records.readers import ReadOptions, location_of, read
from gliner_bento.files.records.sources import Source, text_column
from gliner_bento.mentions import normalized

_NOT_IN_XML = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]+")

Node = tuple[str, str]
"""Label and normalized name."""

Document = str | Mapping[str, Any]
"""A text, or a row that has `entities` and `relations`."""


@dataclass(slots=True)
class _Counts:
    """Counts of one entity or relation. names: how often each spelling occurs. score: the highest score."""

    mentions: int = 0
    documents: int = 0
    score: float = 0.0
    names: Counter[str] = field(default_factory=Counter)
    last_document: int = -1  # number of the last one that was counted

    def add(self, document: int, score: float) -> None:
        """Count a mention in the document with this number. Numbers must not decrease between calls."""
        self.mentions += 1
        if document != self.last_document:
            self.documents += 1
        self.last_document = document
        self.score = max(self.score, score)

    def attributes(self) -> dict[str, Any]:
        """The attributes of a node or an edge."""
        return {"mentions": self.mentions, "documents": self.documents, "score": self.score}


class GraphBuilder:
    """Takes documents one by one; memory grows with the number of different entities and relations."""

    def __init__(self) -> None:
        self.documents = 0
        self._nodes: dict[Node, _Counts] = {}
        self._edges: dict[tuple[Node, Node, str], _Counts] = {}

    def add(self, entities: Sequence[Mapping[str, Any]], relations: Sequence[Mapping[str, Any]]) -> None:
        """Add a document's entities and relations, as the API returns them. Raises ValueError for anything else.

        Relations between spans that are not entities (GLiNER2) have no nodes, and are left out."""
        try:
            nodes = [(_node(entity), str(entity["text"]), float(entity["score"])) for entity in entities]
            edges = [
                ((_node(link["head"]), _node(link["tail"]), str(link["relation"])), float(link["score"]))
                for link in relations
                if link["head"]["label"] is not None and link["tail"]["label"] is not None
            ]
        except (KeyError, TypeError, ValueError):
            raise ValueError("not entities and relations as the API returns them") from None
        of_document = {node for node, _, _ in nodes}
        for (head, tail, _), _ in edges:
            for node in (head, tail):
                if node not in of_document:
                    raise ValueError(f"a relation of {node[1]!r}, which is not an entity of the document")
        for node, name, score in nodes:
            counts = self._nodes.setdefault(node, _Counts())
            counts.add(self.documents, score)
            counts.names[_cleaned(name)] += 1
        for edge, score in edges:
            self._edges.setdefault(edge, _Counts()).add(self.documents, score)
        self.documents += 1

    def graph(self) -> Any:
        """A networkx MultiDiGraph: nodes with name, label, mentions, documents and score; edges with their relation."""
        import networkx as nx  # noqa: PLC0415  # an extra

        graph = nx.MultiDiGraph()
        for (label, name), counts in self._nodes.items():
            most_common = counts.names.most_common(1)[0][0]
            graph.add_node(_id((label, name)), name=most_common, label=_cleaned(label), **counts.attributes())
        for (head, tail, relation), counts in self._edges.items():
            shown = _cleaned(relation)
            graph.add_edge(_id(head), _id(tail), key=shown, relation=shown, **counts.attributes())
        return graph


def check_document(source: Source, row: Row, column: str) -> None:
    """Raise ValueError for a row without entities and without a text in `column`."""
    name = text_column(source, column)
    if "entities" not in row and (name not in row or not isinstance(row[name], str | None)):
        raise ValueError(f"has neither 'entities' nor a text {column!r}")


def read_documents(files: Iterable[Source], column: str, options: ReadOptions) -> Iterator[tuple[str, Document]]:
    """Location and content of each document. `options.check` must be `check_document`."""
    for source in files:
        name = text_column(source, column)
        for number, row in read(source, 0, options):
            yield location_of(source, number), row if "entities" in row else row[name] or ""


def _node(mention: Mapping[str, Any]) -> Node:
    return str(mention["label"]), normalized(str(mention["text"]))


def _id(node: Node) -> str:
    return _cleaned(f"{node[0]}/{node[1]}")


def _cleaned(text: str) -> str:
    """The text in one line, without characters that XML forbids."""
    return " ".join(_NOT_IN_XML.sub(" ", text).split())
