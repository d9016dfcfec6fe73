"""The queries for Neo4j and the script that runs them, on a double of the driver that keeps what it is given."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gliner_bento import cli
from gliner_bento.files.graph import property_graph
from gliner_bento.files.graph.build import GraphBuilder
from gliner_bento.files.graph.iris import Iris

pytest.importorskip("networkx")


class Transaction:
    """A transaction that does what the written queries say, on dictionaries: MERGE by id, SET."""

    def __init__(self, database):
        self.database = database

    def run(self, query, parameters):
        self.database.queries.append(query)
        nodes, links = self.database.nodes, self.database.links
        for row in parameters.get("rows", ()):
            (name,) = re.findall("`(.*?)`", query)
            if "id" in row:
                nodes.setdefault(row["id"], {})[name] = row["properties"]
            elif row["head"] in nodes and row["tail"] in nodes:
                links[row["head"], name, row["relation"], row["tail"]] = row["properties"]
        return SimpleNamespace(consume=lambda: None)


class Database:
    """A double of neo4j's module, driver and session."""

    class Failure(Exception):
        pass

    def __init__(self, failure=None):
        self.nodes, self.links, self.queries, self.opened = {}, {}, [], []
        self.exceptions = SimpleNamespace(Neo4jError=self.Failure, DriverError=self.Failure)
        self.GraphDatabase = self
        self.failure = failure

    def driver(self, uri, auth):
        self.opened.append((uri, auth))
        return self

    def verify_connectivity(self):
        self.opened.append("verified")

    def session(self, database):
        self.opened.append(database)
        return self

    def execute_write(self, work, *arguments):
        if self.failure:
            raise self.Failure(self.failure)
        work(Transaction(self), *arguments)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def builder():
    built = GraphBuilder()
    gates, short = ({"text": text, "label": "person", "score": 0.9} for text in ("Bill Gates", "Gates"))
    company = {"text": "Mega `corp` \\ \u2028", "label": "tech company", "score": 0.8}
    place = {"text": "x" * 20_000, "label": "`:x\n", "score": 0.5}
    links = [(gates, "founded", company), (short, "Founded!", company), (company, "` `", place)]
    found = [{"relation": name, "score": 0.5, "head": head, "tail": tail} for head, name, tail in links]
    built.add([gates, short, company, place], found)
    return built


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Write the graph, and return a function that runs the written script with a driver, or without one."""
    property_graph.write_cypher(builder().graph(), tmp_path / "load", Iris())
    monkeypatch.setenv("NEO4J_PASSWORD", "secret")

    def run(database, *arguments):
        monkeypatch.setitem(sys.modules, "neo4j", database)
        script = runpy.run_path(str(tmp_path / "load" / "load.py"))
        return script["main"](arguments)

    return run


def test_the_script_loads_the_graph_and_a_second_run_changes_nothing(loaded, capsys):
    database = Database()
    for _ in range(2):
        assert loaded(database, "--uri", "bolt://h:1", "--user", "me", "--database", "d") == 0
        assert capsys.readouterr().out == "6 rows\n"
    assert database.opened[:3] == [("bolt://h:1", ("me", "secret")), "d", "verified"]
    assert database.nodes["person/bill gates"]["Person"] == {
        "name": "Bill Gates", "label": "person", "mentions": 2, "documents": 1, "score": 0.9,
        "aliases": ["Gates"], "alias_reasons": ["surname"],
    }  # fmt: skip
    assert len(database.nodes) == 3
    assert max(len(node.encode()) for node in database.nodes) < 4_000
    company = next(node for node, labels in database.nodes.items() if "TechCompany" in labels)
    links = [(head, kind, name) for head, kind, name, _ in database.links]
    assert sorted(links) == [
        ("person/bill gates", "FOUNDED", "Founded!"),
        ("person/bill gates", "FOUNDED", "founded"),
        (company, "RELATED_TO", "` `"),
    ]


def test_no_value_of_the_graph_is_in_a_query(loaded):
    """Labels and types cannot be parameters: they have letters, digits and underscores alone."""
    database = Database()
    loaded(database)
    fixed = [re.sub(r"`\w+`", "", query) for query in database.queries]
    assert len(set(fixed)) == 3
    assert not any("`" in query for query in fixed)


def test_batches_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(property_graph, "BATCH_ROWS", 2)
    built = GraphBuilder()
    built.add([{"text": f"City {letter}", "label": "city", "score": 0.5} for letter in "abcde"], [])
    property_graph.write_cypher(built.graph(), tmp_path, Iris())
    lines = [json.loads(line) for line in (tmp_path / "batches.jsonl").read_text("utf-8").splitlines()]
    assert [len(line["parameters"].get("rows", ())) for line in lines] == [0, 2, 2, 1]
    assert lines[0]["query"].startswith("CREATE CONSTRAINT gliner_bento_id IF NOT EXISTS")


def test_what_keeps_the_script_from_loading_is_one_line(loaded, capsys, monkeypatch, tmp_path):
    assert loaded(Database("The client is\nunauthorized")) == 1
    assert capsys.readouterr().err == "load.py: The client is unauthorized\n"
    assert loaded(None) == 1  # not installed
    assert capsys.readouterr().err == "load.py: needs the driver: pip install neo4j\n"
    monkeypatch.delenv("NEO4J_PASSWORD")
    assert loaded(Database()) == 1
    assert capsys.readouterr().err == "load.py: set NEO4J_PASSWORD\n"
    monkeypatch.setenv("NEO4J_PASSWORD", "x")
    (tmp_path / "load" / "batches.jsonl").write_text("{broken")
    assert loaded(Database()) == 1
    assert capsys.readouterr().err.startswith("load.py: Expecting property name")


def test_the_command_writes_a_script_that_starts_without_this_package(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"entities": [{"text": "Ada", "label": "person", "score": 1}]}))
    assert cli.main(["graph", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "load"), "--format", "cypher"]) == 0
    assert sorted(path.name for path in (tmp_path / "load").iterdir()) == ["batches.jsonl", "load.py"]
    command = [sys.executable, "-I", "load.py", "--help"]
    shown = subprocess.run(command, cwd=tmp_path / "load", capture_output=True, text=True, check=True).stdout
    assert "NEO4J_PASSWORD" in shown
