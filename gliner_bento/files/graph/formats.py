"""Writes a graph: GraphML, CSV for Neo4j, JSON-LD, Turtle."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gliner_bento.files.graph.iris import NAME, NAMESPACE, Iris

_COUNTS = ("mentions", "documents", "score")


def write_graphml(graph: Any, path: Path, _: Iris) -> None:
    """Write one file, for Gephi, yEd, Cytoscape, igraph. The attribute `aliases` is JSON, where there are any."""
    import networkx as nx  # noqa: PLC0415  # an extra

    written = nx.MultiDiGraph()
    for node, data in graph.nodes(data=True):
        aliases = {"aliases": json.dumps(data["aliases"], ensure_ascii=False)} if data["aliases"] else {}
        written.add_node(node, **{name: value for name, value in data.items() if name != "aliases"}, **aliases)
    written.add_edges_from(graph.edges(keys=True, data=True))
    nx.write_graphml(written, path, named_key_ids=True)


def write_csv(graph: Any, folder: Path, _: Iris) -> None:
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


def write_jsonld(graph: Any, path: Path, iris: Iris) -> None:
    """Write one file: typed nodes with a property for each relation."""
    nodes: dict[str, dict[str, Any]] = {
        node: {
            "@id": iris.node(node),
            "@type": iris.label(data["label"]),
            "name": data["name"],
            **dict(zip(_COUNTS, _counts(data), strict=True)),
            **({"alias": data["aliases"]} if data["aliases"] else {}),
        }
        for node, data in graph.nodes(data=True)
    }
    for head, tail, data in graph.edges(data=True):
        nodes[head].setdefault(iris.relation(data["relation"]), []).append({"@id": iris.node(tail)})
    terms = {name: f"{NAMESPACE}{name}" for name in (*_COUNTS, "alias", "reason")}
    content = {"@context": {"name": NAME, **terms}, "@graph": [*nodes.values()]}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_turtle(graph: Any, path: Path, iris: Iris) -> None:
    """Write one file with the triples of JSON-LD."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f"@prefix g: <{NAMESPACE}> .\n")
        for node, data in graph.nodes(data=True):
            lines = [f"<{iris.node(node)}> a <{iris.label(data['label'])}>", f"<{NAME}> {_literal(data['name'])}"]
            lines += [f"g:{name} {_literal(value)}" for name, value in zip(_COUNTS, _counts(data), strict=True)]
            lines += [
                f"g:alias [ <{NAME}> {_literal(alias['name'])} ; g:reason {_literal(alias['reason'])} ;"
                f" g:mentions {alias['mentions']} ]"
                for alias in data["aliases"]
            ]
            for _, tail, link in graph.out_edges(node, data=True):
                lines.append(f"<{iris.relation(link['relation'])}> <{iris.node(tail)}>")
            file.write(" ;\n    ".join(lines) + " .\n")


def _literal(value: str | float) -> str:
    """A value in Turtle, whose escapes in strings are those of JSON."""
    if isinstance(value, float):
        return f'"{value!r}"^^<http://www.w3.org/2001/XMLSchema#double>'
    return json.dumps(value, ensure_ascii=False)


Writer = Callable[[Any, Path, Iris], None]
FORMATS: dict[str, Writer] = {
    "graphml": write_graphml,
    "csv": write_csv,
    "jsonld": write_jsonld,
    "turtle": write_turtle,
}
SUFFIXES = {".graphml": "graphml", ".jsonld": "jsonld", ".ttl": "turtle", "": "csv"}
WITH_IRIS = ("jsonld", "turtle")


def written_files(kind: str, path: Path) -> list[Path]:
    """The files of a graph that is written to `path`."""
    return [path / name for name in ("nodes.csv", "relationships.csv", "merges.csv")] if kind == "csv" else [path]


def _counts(attributes: Mapping[str, Any]) -> list[Any]:
    return [attributes[name] for name in _COUNTS]


def _label(name: str) -> str:
    """`phone number` as PhoneNumber."""
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"\w+", name)) or "Entity"


def _type(name: str) -> str:
    """`headquartered in` as HEADQUARTERED_IN."""
    return "_".join(re.findall(r"\w+", name)).upper() or "RELATED_TO"
