"""`gliner-bento graph`: entities and relations of many documents in one graph."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import CommandError, add_json, add_records
from gliner_bento.cli.texts import counted
from gliner_bento.errors import install_hint
from gliner_bento.files.graph.build import (
    MERGINGS,
    Document,
    GraphBuilder,
    Parts,
    Place,
    check_document,
    read_documents,
)
from gliner_bento.files.graph.formats import FORMATS, SUFFIXES, WITH_IRIS, written_files
from gliner_bento.files.graph.iris import Iris, parse_iris
from gliner_bento.files.records.columns import result_columns
from gliner_bento.files.records.readers import ReadOptions
from gliner_bento.files.records.scan import scan
from gliner_bento.files.records.sources import lacks_data, left_out, left_out_line, refuse_overwriting, sources
from gliner_bento.process.exits import write_line
from gliner_bento.tasks.requests import check_shared

EXAMPLES = """examples:
  gliner-bento graph results.jsonl -o graph.graphml
  gliner-bento graph articles -o graph.jsonld --labels person,organization --relations founded,"works for"
  gliner-bento graph results.parquet -o import --format csv
  gliner-bento graph results.parquet -o load --format cypher
  gliner-bento graph results.jsonl -o graph.ttl --iris iris.yaml

exit codes: 0 done; 1 an argument, an input, a setting, the model or the server is wrong, and one line says which;
2 a file could not be read or has another format, or a document has no result, and is not in the graph;
or a document is in another language than the model's: one line for each reason"""

NOT_ALL_DONE = 2


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, and those of `backend`."""
    add_records(parser, "rows with `entities` (and `relations`) are used unchanged; texts need --labels")
    written = "a file; a folder for csv and cypher"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PATH", help=written)
    parser.add_argument(
        "--format", choices=[*FORMATS], help="default: by the suffix of the output; csv if it has no suffix"
    )
    parser.add_argument(
        "--merge",
        choices=MERGINGS,
        default="names",
        help="names: also initials, titles, legal forms, parts of a name in its document; none: equal names only",
    )
    parser.add_argument(
        "--iris", metavar="FILE", help="for jsonld and turtle: base, labels and relations with IRIs (YAML or JSON)"
    )
    add_json(parser, "print the report as JSON")
    backend.add_flags(parser, several=False)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Build the graph, and write it unless all documents have failed."""
    kind = options.format or SUFFIXES.get(options.output.suffix)
    if kind is None:
        raise CommandError(f"graph: --output: {options.output.suffix} is no known suffix; use --format")
    iris = _iris(options.iris, kind)
    if not find_spec("networkx"):
        raise CommandError(f"graph: networkx is not installed; {install_hint('graph')}")
    builder, failed, warnings, skipped = GraphBuilder(options.merge), dict[str, str](), Counter[str](), list[str]()
    with backend.failing_in_one_line("graph"):
        asyncio.run(_add(options, flags, _documents(options, kind, failed, skipped), builder, failed, warnings))
        graph = builder.graph()
        written = bool(builder.documents or not failed)
        if written:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            FORMATS[kind](graph, options.output, iris)
    for location, reason in failed.items():
        write_line(f"graph: {location}: {reason}")
    for message, number in warnings.items():
        write_line(f"graph: {counted(number, 'document')}: {message}")
    if not_read := left_out(skipped):
        write_line(f"graph: {left_out_line(not_read)}")
    counts = {"documents": builder.documents, "entities": len(graph), "relations": graph.number_of_edges()}
    if options.json:
        merged = Counter(alias["reason"] for _, aliases in graph.nodes(data="aliases") for alias in aliases)
        report = {**counts, "merged": dict(sorted(merged.items()))}
        report |= {"failed": failed, "warnings": warnings, "left_out": not_read}
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    elif written:
        singular = {"documents": "document", "entities": "entity", "relations": "relation"}
        shown = (counted(number, singular[plural], plural) for plural, number in counts.items())
        sys.stdout.write(f"{', '.join(shown)}: {options.output}\n")
    return NOT_ALL_DONE if failed or warnings or lacks_data(not_read) else 0


def _iris(path: str | None, kind: str) -> Iris:
    """The IRIs in a file. Raises `CommandError`."""
    if path is None:
        return Iris()
    if kind not in WITH_IRIS:
        raise CommandError(f"graph: --iris: is for the formats {' and '.join(WITH_IRIS)}; this is {kind}")
    content = backend.read_yaml(Path(path), "graph: --iris")
    try:
        return parse_iris(content)
    except ValueError as error:
        raise CommandError(f"graph: --iris: {path}: {error}") from None


def _documents(
    options: argparse.Namespace, kind: str, failed: dict[str, str], skipped: list[str]
) -> Iterator[tuple[Place, Document]]:
    """The documents of all readable files. failed: receives each unreadable file and skipped line, with the reason.
    skipped: receives the paths in folders that are not read."""
    column = options.text_column
    read_options = ReadOptions(
        encoding=options.encoding,
        invalid=failed.__setitem__ if options.skip_invalid else None,
        check=partial(check_document, column=column),
        not_read=failed.__setitem__,
    )
    files = list(sources(options.inputs, [options.output], skipped.append))
    read_only = [*(source.path for source in files), *map(Path, filter(None, [options.iris]))]
    refuse_overwriting(written_files(kind, options.output), read_only)
    scanned = scan(files, read_options)
    if not scanned.records and not failed:
        nothing = f"{', '.join(options.inputs)}: no documents"
        nothing += f"; {left_out_line(left_out(skipped))}" if skipped else ""
        reason = next(iter(scanned.skipped.values()), nothing)
        raise ValueError(reason)
    for path, fault in scanned.skipped.items():
        failed[path] = fault.removeprefix(f"{path}: ")
    readable = (source for source in files if source.shown not in scanned.skipped)
    return read_documents(readable, column, read_options)


async def _add(
    options: argparse.Namespace,
    flags: Mapping[str, Any],
    documents: Iterable[tuple[Place, Document]],
    builder: GraphBuilder,
    failed: dict[str, str],
    warnings: Counter[str],
) -> None:
    """Add all documents, and count the warnings about them.

    The model is loaded, or the server called, when the first text without a result is read.
    """
    waiting: deque[Place] = deque()  # of texts that wait for their results
    of_rows, of_texts = Parts(builder), Parts(builder)  # rows are added while earlier texts wait

    def texts_to_extract() -> Iterator[str]:
        """Add the documents that have a result, and yield the texts of those that have none."""
        for place, document in documents:
            if isinstance(document, str):
                waiting.append(place)
                yield document
            elif document.get("error"):
                failed[place.location] = str(document["error"])
            else:
                of_rows.add(place.document, document["entities"] or (), document.get("relations") or ())
        of_rows.close()

    texts = texts_to_extract()
    if (first := next(texts, None)) is None:
        return
    labels = backend.names(options.labels, "--labels")
    if not labels:
        raise CommandError("graph: --labels is required for texts: names, separated by commas")
    fields = backend.request_fields(options)
    check_shared(labels, fields)
    async with backend.client(options, flags) as client:
        async for outcome in client.extract_many(chain([first], texts), labels, **fields):
            place = waiting.popleft()
            if outcome.result is None:
                failed[place.location] = outcome.error.message
            else:
                of_texts.add(place.document, **result_columns(outcome.result))
                warnings.update(warning.message for warning in outcome.result.warnings)
    of_texts.close()
