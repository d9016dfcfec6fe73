"""Builds a graph of many documents: rows that have entities already, or texts that a model has to read.

Entities are merged by label and normalized name. Needs networkx.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gliner_bento.files.mentions import normalized
from gliner_bento.files.records.columns import Row
from gliner_bento.files.records.readers import Reading, location_of, read
from gliner_bento.files.records.sources import Source, text_column

_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]+")

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
    last_document: int = -1

    def add(self, document: int, score: float) -> None:
        """Count a mention. document: its number; numbers must not decrease."""
        self.mentions += 1
        self.documents += document != self.last_document
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
            nodes = [(_node(one), str(one["text"]), float(one["score"])) for one in entities]
            edges = [
                ((_node(one["head"]), _node(one["tail"]), str(one["relation"])), float(one["score"]))
                for one in relations
                if one["head"]["label"] is not None and one["tail"]["label"] is not None
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not entities and relations as the API returns them: {error!r}") from None
        for node, name, score in nodes:
            counts = self._nodes.setdefault(node, _Counts())
            counts.add(self.documents, score)
            counts.names[_shown(name)] += 1
        for edge, score in edges:
            for node in edge[:2]:
                if node not in self._nodes:
                    raise ValueError(f"a relation of {node[1]!r}, which is not an entity of the document")
            self._edges.setdefault(edge, _Counts()).add(self.documents, score)
        self.documents += 1

    def graph(self) -> Any:
        """A networkx MultiDiGraph: nodes with name, label, mentions, documents and score; edges with their relation."""
        import networkx as nx  # noqa: PLC0415  # an extra

        graph = nx.MultiDiGraph()
        for (label, name), counts in self._nodes.items():
            shown = counts.names.most_common(1)[0][0]
            graph.add_node(_id((label, name)), name=shown, label=_shown(label), **counts.attributes())
        for (head, tail, relation), counts in self._edges.items():
            shown = _shown(relation)
            graph.add_edge(_id(head), _id(tail), key=shown, relation=shown, **counts.attributes())
        return graph


def check_document(source: Source, row: Row, column: str) -> None:
    """Raise ValueError for a row without entities and without a text in `column`."""
    if "entities" not in row and not isinstance(row.get(text_column(source, column), 0), str | None):
        raise ValueError(f"has neither 'entities' nor a text {column!r}")


def read_documents(files: Iterable[Source], column: str, reading: Reading) -> Iterator[tuple[str, Document]]:
    """Location and content of each document, which `check_document` has accepted."""
    for source in files:
        name = text_column(source, column)
        for number, row in read(source, 0, reading):
            yield location_of(source, number), row if "entities" in row else row[name] or ""


def _node(mention: Mapping[str, Any]) -> Node:
    return str(mention["label"]), normalized(str(mention["text"]))


def _id(node: Node) -> str:
    return _shown(f"{node[0]}/{node[1]}")


def _shown(text: str) -> str:
    """The text in one line, without characters that XML forbids."""
    return " ".join(_NO_TEXT.sub(" ", text).split())
