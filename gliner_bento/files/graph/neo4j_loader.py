"""Loads a graph into Neo4j: NEO4J_PASSWORD=... python load.py [--uri URI] [--user USER] [--database NAME]

Needs `pip install neo4j`. Reads batches.jsonl beside it, with a query and its parameters on each line. Nodes and
relationships are merged by their ids, so a second run changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

BATCHES = "batches.jsonl"


def load(session: Any, lines: Iterable[str]) -> int:
    """Run the query of each line in a transaction of its own; the number of rows. The driver repeats a transaction that
    fails for the moment."""
    rows = 0
    for line in lines:
        batch = json.loads(line)
        session.execute_write(_run, batch["query"], batch["parameters"])
        rows += len(batch["parameters"].get("rows", ()))
    return rows


def _run(transaction: Any, query: str, parameters: dict[str, Any]) -> None:
    transaction.run(query, parameters).consume()


def main(argv: Sequence[str] | None = None) -> int:
    """Load the batches; the exit code. Any error of the database is one line."""
    parser = argparse.ArgumentParser(description="Load a graph into Neo4j. The password is in NEO4J_PASSWORD.")
    parser.add_argument("--uri", default="neo4j://localhost:7687")
    parser.add_argument("--user", default="neo4j")
    parser.add_argument("--database", help="default: the user's")
    options = parser.parse_args(argv)
    try:
        import neo4j  # noqa: PLC0415  # this module is also imported where it is not installed
    except ImportError:
        sys.stderr.write("load.py: needs the driver: pip install neo4j\n")
        return 1
    if not (password := os.environ.get("NEO4J_PASSWORD")):
        sys.stderr.write("load.py: set NEO4J_PASSWORD\n")
        return 1
    try:
        with (
            (Path(__file__).parent / BATCHES).open(encoding="utf-8") as lines,
            neo4j.GraphDatabase.driver(options.uri, auth=(options.user, password)) as driver,
            driver.session(database=options.database) as session,
        ):
            driver.verify_connectivity()  # or the driver would try for a minute
            rows = load(session, lines)
    except (OSError, ValueError, neo4j.exceptions.Neo4jError, neo4j.exceptions.DriverError) as error:
        sys.stderr.write(f"load.py: {' '.join(str(error).split())}\n")
        return 1
    sys.stdout.write(f"{rows} rows\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
