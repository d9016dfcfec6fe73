"""Builds a graph of many documents: rows that have entities already, or texts that a model has to read.

The result does not depend on the order of the documents. Needs networkx.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from gliner_bento.files.graph.merge import Merge, merges, together
from gliner_bento.files.graph.names import MAX_CHARS, Name, canonical, kind_of
from gliner_bento.files.records.columns import Row
from gliner_bento.files.records.readers import ReadOptions, location_of, read
from gliner_bento.files.records.sources import Source, text_column
from gliner_bento.mentions import normalized

_NOT_IN_XML = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]+")

Node = tuple[str, str]
"""Label, and canonical or normalized name."""

Entities = Sequence[Mapping[str, Any]]
"""Entities or relations, as the API returns them."""

Document = str | Mapping[str, Any]
"""A text, or a row that has `entities` and `relations`."""

Merging = Literal["names", "none"]
"""Which mentions are one node. names: those of one canonical name, and in a document those of a part of it. none: those
of one normalized name."""

MERGINGS: tuple[Merging, ...] = ("names", "none")


@dataclass(slots=True)
class _Counts:
    """Counts of one entity or relation. score: the highest score. names: how often each spelling occurs, with the
    reason why it is this entity's, if that is another name of the document."""

    mentions: int = 0
    documents: int = 0
    score: float = 0.0
    names: Counter[tuple[str, str]] = field(default_factory=Counter)
    last_document: int = -1  # number of the last one that was counted

    def add(self, document: int, score: float) -> None:
        """Count a mention in the document with this number. Numbers must not decrease between calls."""
        self.mentions += 1
        if document != self.last_document:
            self.documents += 1
        self.last_document = document
        self.score = max(self.score, score)

    def include(self, other: _Counts) -> None:
        """Add the counts of an entity or relation that is never in the same document."""
        self.mentions += other.mentions
        self.documents += other.documents
        self.score = max(self.score, other.score)
        self.names.update(other.names)

    def attributes(self) -> dict[str, Any]:
        """The attributes of a node or an edge."""
        return {"mentions": self.mentions, "documents": self.documents, "score": self.score}


class GraphBuilder:
    """Takes documents one by one; memory grows with the number of different entities and relations."""

    def __init__(self, merging: Merging = "names") -> None:
        self.documents = 0
        self._merging = merging
        self._nodes: dict[Node, _Counts] = {}
        self._edges: dict[tuple[Node, Node, str], _Counts] = {}
        self._forms: defaultdict[Node, set[Node]] = defaultdict(set)  # nodes with a form, by the name without it

    def add(self, entities: Entities, relations: Entities) -> list[Node]:
        """Add a document's entities and relations, as the API returns them; the node of each entity, for `node_id`.
        Raises ValueError for anything else.

        Relations between spans that are not entities (GLiNER2) have no nodes, and are left out."""
        mentions, links = _parsed(entities, relations)
        node_of = self._nodes_of_document([mention for mention, _ in mentions])
        nodes = []
        for mention, score in mentions:
            node, reason = node_of(mention)
            counts = self._nodes.setdefault(node, _Counts())
            counts.add(self.documents, score)
            counts.names[_cleaned(mention[1]), reason] += 1
            nodes.append(node)
        for head, tail, relation, score in links:
            edge = node_of(head)[0], node_of(tail)[0], relation
            self._edges.setdefault(edge, _Counts()).add(self.documents, score)
        self.documents += 1
        return nodes

    def _nodes_of_document(self, mentions: Iterable[Node]) -> Callable[[Node], tuple[Node, str]]:
        """A function that returns the node of each mention of a document, and the reason if it has another name."""
        if self._merging == "none":
            return lambda mention: ((mention[0], normalized(mention[1])), "")
        names = defaultdict[str, dict[str, Name]](dict)
        for label, text in mentions:
            name = _canonical(label, text)
            names[label][name.key] = together(name, names[label].get(name.key))
        joined = {label: self._joined(label, of_label) for label, of_label in names.items()}

        def node_of(mention: Node) -> tuple[Node, str]:
            label, text = mention
            key = _bare(_canonical(label, text).key, names[label])
            merge = joined[label].get(key, Merge(key, ""))
            return (label, merge.key), merge.reason

        return node_of

    def _joined(self, label: str, names: Mapping[str, Name]) -> dict[str, Merge]:
        """The names of a document, by key, that join another one. Collects their legal forms and genders."""
        different = [name for key, name in names.items() if _bare(key, names) == key]
        joined = merges(different)
        for name in different:
            merge = joined.get(name.key, Merge(name.key, ""))
            if not merge.reason and (name.form or merge.key != name.key):
                self._forms[label, name.formless].add((label, merge.key))
        return joined

    def node_id(self, node: Node) -> str:
        """The id in the graph of a node that `add` has returned, once all documents are added."""
        return _id(self._moved().get(node, node))

    def _moved(self) -> dict[Node, Node]:
        """The nodes that are another one's: names with a legal form or gender, where all documents have no other one
        of the same name."""
        return {form: node for node, forms in self._forms.items() if len(forms) == 1 for form in forms}

    def graph(self) -> Any:
        """A networkx MultiDiGraph: nodes with name, label, aliases, mentions, documents and score; edges with their
        relation. aliases: other spellings, as dictionaries of name, reason and mentions. Sorted by id."""
        import networkx as nx  # noqa: PLC0415  # an extra

        moved = self._moved()
        nodes, edges = dict[Node, _Counts](), dict[tuple[Node, Node, str], _Counts]()
        for node, counts in self._nodes.items():
            nodes.setdefault(moved.get(node, node), _Counts()).include(counts)
        for (head, tail, relation), counts in self._edges.items():
            edges.setdefault((moved.get(head, head), moved.get(tail, tail), relation), _Counts()).include(counts)
        graph = nx.MultiDiGraph()
        for node, counts in sorted(nodes.items(), key=lambda item: item[0]):
            name, aliases = _names(node[0], counts.names)
            graph.add_node(_id(node), name=name, label=_cleaned(node[0]), aliases=aliases, **counts.attributes())
        for (head, tail, relation), counts in sorted(edges.items(), key=lambda item: item[0]):
            shown = _cleaned(relation)
            graph.add_edge(_id(head), _id(tail), key=shown, relation=shown, **counts.attributes())
        return graph


def check_document(source: Source, row: Row, column: str) -> None:
    """Raise ValueError for a row without entities and without a text in `column`, or with others than the API's."""
    name = text_column(source, column)
    if "entities" in row:
        if not row.get("error"):
            _parsed(row["entities"] or (), row.get("relations") or ())
    elif name not in row or not isinstance(row[name], str | None):
        raise ValueError(f"has neither 'entities' nor a text {column!r}")


class Parts:
    """Adds documents that come in parts, such as pages, to a builder: a document with its last part."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self._document: str | None = None
        self._entities: list[Mapping[str, Any]] = []
        self._relations: list[Mapping[str, Any]] = []

    def add(self, document: str, entities: Entities, relations: Entities) -> None:
        """Add a part. Those that follow each other with the same name of a document are one."""
        if document != self._document:
            self.close()
        self._document = document
        self._entities += entities
        self._relations += relations

    def close(self) -> None:
        """Add the document of the parts so far to the builder."""
        if self._document is not None:
            self._builder.add(self._entities, self._relations)
        self._document, self._entities, self._relations = None, [], []


class Place(NamedTuple):
    """Where a text or row comes from. document: name of the document that it is a part of, such as a page. The parts of
    a document follow each other."""

    location: str
    document: str


def read_documents(files: Iterable[Source], column: str, options: ReadOptions) -> Iterator[tuple[Place, Document]]:
    """Place and content of each record. `options.check` must be `check_document`."""
    for source in files:
        name = text_column(source, column)
        for number, row in read(source, 0, options):
            location = location_of(source, number)
            place = Place(location, _document_of(source, row) or location)
            yield place, row if "entities" in row else row[name] or ""


def _document_of(source: Source, row: Row) -> str:
    """The document of which a row is a page or other part, read here or by `bulk`; "" for others. Cells of a sheet are
    documents of their own, as rows of a table are."""
    is_part = isinstance(row.get("part"), str) and row.get("sheet") is None
    if not is_part or (source.kind != "document" and not isinstance(row.get("file"), str)):
        return ""
    return f"{source.shown}: {row.get('file', '')}"


def _parsed(
    entities: Entities, relations: Entities
) -> tuple[list[tuple[Node, float]], list[tuple[Node, Node, str, float]]]:
    """Label, text and score of entities; head, tail, relation and score of relations. Raises ValueError."""
    try:
        mentions = [(_mention(entity), _score(entity)) for entity in entities]
        links = [
            (_mention(link["head"]), _mention(link["tail"]), str(link["relation"]), _score(link))
            for link in relations
            if link["head"]["label"] is not None and link["tail"]["label"] is not None
        ]
    except (KeyError, TypeError, ValueError):
        raise ValueError("not entities and relations as the API returns them") from None
    known = {(label, normalized(text)) for (label, text), _ in mentions}
    for label, text in (end for head, tail, _, _ in links for end in (head, tail)):
        if (label, normalized(text)) not in known:
            raise ValueError(f"a relation of {normalized(text)!r}, which is not an entity of the document")
    return mentions, links


def _mention(mention: Mapping[str, Any]) -> Node:
    label, text = mention["label"], mention["text"]
    if not isinstance(label, str) or not isinstance(text, str) or not _cleaned(text):
        raise ValueError("no label or text")
    return label, text


def _score(mention: Mapping[str, Any]) -> float:
    if not math.isfinite(score := float(mention["score"])):
        raise ValueError("no score")
    return score


def _bare(key: str, names: Mapping[str, Name]) -> str:
    """The key without a possessive, if the document has that name too."""
    while names[key].bare in names:
        key = names[key].bare
    return key


def _canonical(label: str, text: str) -> Name:
    return _cached_canonical(label, text) if len(text) <= MAX_CHARS else canonical(text, kind_of(label))


@lru_cache(maxsize=4096)
def _cached_canonical(label: str, text: str) -> Name:
    return canonical(text, kind_of(label))


def _names(label: str, spellings: Counter[tuple[str, str]]) -> tuple[str, list[dict[str, Any]]]:
    """The name of a node, and its other spellings. The name is the most frequent one of those that are not parts of a
    name, without a possessive if there is one."""

    def rank(spelling: str, reason: str) -> tuple[Any, ...]:
        steps, mentions = _canonical(label, spelling).steps, spellings[spelling, reason]
        return reason != "", "possessive" in steps, -mentions, len(steps), spelling.isupper(), spelling

    name, _ = min(spellings, key=lambda spelling: rank(*spelling))
    steps = _canonical(label, name).steps
    aliases = []
    for (spelling, reason), mentions in sorted(spellings.items()):
        if spelling != name or reason:
            differences = [*filter(None, [reason]), *sorted(steps ^ _canonical(label, spelling).steps)]
            aliases.append({"name": spelling, "reason": ", ".join(differences) or "spelling", "mentions": mentions})
    return name, aliases


def _id(node: Node) -> str:
    return _cleaned(f"{node[0]}/{node[1]}")


def _cleaned(text: str) -> str:
    """The text in one line, without characters that XML forbids."""
    return " ".join(_NOT_IN_XML.sub(" ", text).split())
