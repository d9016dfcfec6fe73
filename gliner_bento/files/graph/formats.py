"""The formats of a graph: GraphML, JSON-LD and Turtle here, those for Neo4j in `property_graph`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gliner_bento.files.graph.iris import NAME, PROPERTIES, Iris
from gliner_bento.files.graph.property_graph import (
    COUNTS,
    CSV_FILES,
    CYPHER_FILES,
    counts_of,
    write_csv,
    write_cypher,
)


def write_graphml(graph: Any, path: Path, _: Iris) -> None:
    """Write one file, for Gephi, yEd, Cytoscape, igraph. The attribute `aliases` is JSON, where there are any."""
    import networkx as nx  # noqa: PLC0415  # an extra

    written = nx.MultiDiGraph()
    for node, data in graph.nodes(data=True):
        aliases = {"aliases": json.dumps(data["aliases"], ensure_ascii=False)} if data["aliases"] else {}
        written.add_node(node, **{name: value for name, value in data.items() if name != "aliases"}, **aliases)
    written.add_edges_from(graph.edges(keys=True, data=True))
    nx.write_graphml(written, path, named_key_ids=True)


def write_jsonld(graph: Any, path: Path, iris: Iris) -> None:
    """Write one file: typed nodes with a property for each relation."""
    nodes: dict[str, dict[str, Any]] = {
        node: {
            "@id": iris.node(node),
            "@type": iris.label(data["label"]),
            "name": data["name"],
            **counts_of(data),
            **({"alias": data["aliases"]} if data["aliases"] else {}),
        }
        for node, data in graph.nodes(data=True)
    }
    for head, tail, data in graph.edges(data=True):
        nodes[head].setdefault(iris.relation(data["relation"]), []).append({"@id": iris.node(tail)})
    terms = {name: f"{PROPERTIES}{name}" for name in (*COUNTS, "alias", "reason")}
    content = {"@context": {"name": NAME, **terms}, "@graph": [*nodes.values()]}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_turtle(graph: Any, path: Path, iris: Iris) -> None:
    """Write one file with the triples of JSON-LD."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f"@prefix g: <{PROPERTIES}> .\n")
        for node, data in graph.nodes(data=True):
            lines = [f"<{iris.node(node)}> a <{iris.label(data['label'])}>", f"<{NAME}> {_literal(data['name'])}"]
            lines += [f"g:{name} {_literal(value)}" for name, value in counts_of(data).items()]
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
    "cypher": write_cypher,
    "jsonld": write_jsonld,
    "turtle": write_turtle,
}
SUFFIXES = {".graphml": "graphml", ".jsonld": "jsonld", ".ttl": "turtle", "": "csv"}
WITH_IRIS = ("jsonld", "turtle")


def written_files(kind: str, path: Path) -> list[Path]:
    """The files of a graph that is written to `path`."""
    names = {"csv": CSV_FILES, "cypher": CYPHER_FILES}.get(kind)
    return [path / name for name in names] if names else [path]
