"""Writes a graph for Neo4j: CSV for a new database; for a running one, queries and a script that runs them."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from gliner_bento.files.graph import neo4j_loader
from gliner_bento.files.graph.iris import Iris

COUNTS = ("mentions", "documents", "score")
CSV_FILES = ("nodes.csv", "relationships.csv", "merges.csv")
CYPHER_FILES = (neo4j_loader.BATCHES, "load.py")
BATCH_ROWS = 1_000
_MAX_KEY_BYTES = 4_000

_CONSTRAINT = "CREATE CONSTRAINT gliner_bento_id IF NOT EXISTS FOR (n:Entity) REQUIRE n.id IS UNIQUE"
_NODES = "UNWIND $rows AS row MERGE (n:Entity {{id: row.id}}) SET n:`{label}` SET n += row.properties"
_RELATIONSHIPS = (
    "UNWIND $rows AS row MATCH (head:Entity {{id: row.head}}) MATCH (tail:Entity {{id: row.tail}})"
    " MERGE (head)-[r:`{type}` {{relation: row.relation}}]->(tail) SET r += row.properties"
)


def write_csv(graph: Any, folder: Path, _: Iris) -> None:
    """Write nodes.csv and relationships.csv, with the headers of `neo4j-admin database import`, and merges.csv: the
    other spellings of nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = (
        [node, data["name"], *counts_of(data).values(), _label(data["label"])] for node, data in graph.nodes(data=True)
    )
    edges = (
        [head, tail, *counts_of(data).values(), _type(data["relation"])] for head, tail, data in graph.edges(data=True)
    )
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
    paths = (folder / name for name in CSV_FILES)
    for path, header, rows in zip(paths, headers, (nodes, edges, merges), strict=True):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])


def write_cypher(graph: Any, folder: Path, _: Iris) -> None:
    """Write batches.jsonl and load.py. Nodes have the label `Entity` beside their own."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / neo4j_loader.BATCHES).open("w", encoding="utf-8") as file:
        for query, parameters in _batches(graph):
            file.write(json.dumps({"query": query, "parameters": parameters}, ensure_ascii=False) + "\n")
    shutil.copyfile(neo4j_loader.__file__, folder / CYPHER_FILES[1])


def _batches(graph: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Queries with their parameters: the constraint that makes merging by id fast, nodes, then relationships."""
    yield _CONSTRAINT, {}
    nodes, relationships = defaultdict[str, list[dict[str, Any]]](list), defaultdict[str, list[dict[str, Any]]](list)
    for node, data in graph.nodes(data=True):
        nodes[_label(data["label"])].append({"id": _key(node), "properties": _properties(data)})
    for head, tail, data in graph.edges(data=True):
        row = {"head": _key(head), "tail": _key(tail), "relation": data["relation"], "properties": counts_of(data)}
        relationships[_type(data["relation"])].append(row)
    for label, rows in nodes.items():
        yield from _of_query(_NODES.format(label=label), rows)
    for name, rows in relationships.items():
        yield from _of_query(_RELATIONSHIPS.format(type=name), rows)


def _of_query(query: str, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH_ROWS)):
        yield query, {"rows": batch}


def _properties(data: Mapping[str, Any]) -> dict[str, Any]:
    """A node's properties. Lists of maps are none in Neo4j: aliases and their reasons are two lists."""
    aliases = {
        "aliases": [alias["name"] for alias in data["aliases"]],
        "alias_reasons": [alias["reason"] for alias in data["aliases"]],
    }
    return {"name": data["name"], "label": data["label"], **counts_of(data), **aliases}


def counts_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a node or an edge, by name."""
    return {name: data[name] for name in COUNTS}


def _key(node: str) -> str:
    """The id of a node, short enough for an index of Neo4j, which has at most 8 kB of a text."""
    if len(node.encode()) <= _MAX_KEY_BYTES:
        return node
    return f"{node[:500]}...{hashlib.sha256(node.encode()).hexdigest()}"


def _label(name: str) -> str:
    """`phone number` as PhoneNumber."""
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"\w+", name)) or "Entity"


def _type(name: str) -> str:
    """`headquartered in` as HEADQUARTERED_IN."""
    return "_".join(re.findall(r"\w+", name)).upper() or "RELATED_TO"
