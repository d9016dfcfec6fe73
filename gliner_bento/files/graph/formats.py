"""Writes a graph: GraphML, CSV for Neo4j, JSON-LD."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

_NAMESPACE = "urn:gliner-bento:"
_COUNTS = ("mentions", "documents", "score")


def write_graphml(graph: Any, path: Path) -> None:
    """Write one file, for Gephi, yEd, Cytoscape, igraph. The attribute `aliases` is JSON, where there are any."""
    import networkx as nx  # noqa: PLC0415  # an extra

    written = nx.MultiDiGraph()
    for node, data in graph.nodes(data=True):
        aliases = {"aliases": json.dumps(data["aliases"], ensure_ascii=False)} if data["aliases"] else {}
        written.add_node(node, **{name: value for name, value in data.items() if name != "aliases"}, **aliases)
    written.add_edges_from(graph.edges(keys=True, data=True))
    nx.write_graphml(written, path, named_key_ids=True)


def write_csv(graph: Any, folder: Path) -> None:
    """Write nodes.csv and relationships.csv, with the headers of `neo4j-admin database import`, and merges.csv: the
    other spellings of nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = ([node, data["name"], *_counts(data), _label(data["label"])] for node, data in graph.nodes(data=True))
    edges = ([head, tail, *_counts(data), _type(data["relation"])] for head, tail, data in graph.edges(data=True))
    counts = ["mentions:int", "documents:int", "score:float"]
    merges = (
        [node, alias["name"], alias["reason"], alias["mentions"]]
        for node, data in graph.nodes(data=True)
        for alias in data["aliases"]
    )
    headers = (
        ["id:ID", "name", *counts, ":LABEL"],
        [":START_ID", ":END_ID", *counts, ":TYPE"],
        ["id", "name", "reason", "mentions"],
    )
    for path, header, rows in zip(written_files("csv", folder), headers, (nodes, edges, merges), strict=True):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])


def write_jsonld(graph: Any, path: Path) -> None:
    """Write one file: typed nodes with a property for each relation."""
    nodes: dict[str, dict[str, Any]] = {
        node: {
            "@id": _iri(node),
            "@type": _iri(data["label"]),
            "name": data["name"],
            **dict(zip(_COUNTS, _counts(data), strict=True)),
            **({"alias": data["aliases"]} if data["aliases"] else {}),
        }
        for node, data in graph.nodes(data=True)
    }
    for head, tail, data in graph.edges(data=True):
        nodes[head].setdefault(_iri(data["relation"]), []).append({"@id": _iri(tail)})
    terms = {name: f"{_NAMESPACE}{name}" for name in (*_COUNTS, "alias", "reason")}
    content = {"@context": {"name": "https://schema.org/name", **terms}, "@graph": [*nodes.values()]}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


FORMATS: dict[str, Callable[[Any, Path], None]] = {"graphml": write_graphml, "csv": write_csv, "jsonld": write_jsonld}


def written_files(kind: str, path: Path) -> list[Path]:
    """The files of a graph that is written to `path`."""
    return [path / name for name in ("nodes.csv", "relationships.csv", "merges.csv")] if kind == "csv" else [path]


def _counts(attributes: Mapping[str, Any]) -> list[Any]:
    return [attributes[name] for name in _COUNTS]


def _iri(name: str) -> str:
    return _NAMESPACE + quote(name, safe="/")


def _label(name: str) -> str:
    """`phone number` as PhoneNumber."""
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"\w+", name)) or "Entity"


def _type(name: str) -> str:
    """`headquartered in` as HEADQUARTERED_IN."""
    return "_".join(re.findall(r"\w+", name)).upper() or "RELATED_TO"
