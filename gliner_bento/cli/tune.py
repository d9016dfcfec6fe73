"""`gliner-bento tune`: finds the thresholds of a model's labels on examples, as a row of the setting `models`."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gliner_bento.cli import backend
from gliner_bento.cli.eval import add_gold, check_writable, fraction
from gliner_bento.cli.parsers import CommandError, add_json
from gliner_bento.cli.score_tables import percent, shown_change
from gliner_bento.cli.texts import counted
from gliner_bento.files.evaluation.gold import Example, Link, Span, folded
from gliner_bento.files.evaluation.readers import read_gold
from gliner_bento.files.evaluation.thresholds import (
    LOWEST_SCORE,
    MIN_KNOWN,
    Candidate,
    Resolve,
    Scored,
    Tuned,
    all_links,
    flat_spans,
    flat_spans_of_labels,
    known_enough,
    nested_spans,
    tune,
)
from gliner_bento.model_types import short_name
from gliner_bento.process.exits import write_line
from gliner_bento.settings import Settings
from gliner_bento.tasks.requests import check_shared

NOT_ALL = 2
_START = 0.5

EXAMPLES = f"""examples:
  gliner-bento tune gold.jsonl
  gliner-bento tune gold.jsonl --model ./checkpoint --min-recall 0.9 -o configuration.yaml
  gliner-bento tune export.json --url http://localhost:3000 --json

exit codes: 0 done; 1 an argument, the examples, the model or the server is wrong, and one line says which; {NOT_ALL} a
text has no result, or a label does not reach --min-recall, one line each"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, and those of `backend`."""
    add_gold(parser)
    parser.add_argument("--min-recall", type=fraction, default=0.0, metavar="X", help="lowest recall of each label")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="new configuration file with the thresholds")
    add_json(parser, "print thresholds and scores as JSON")
    backend.add_flags(parser, several=False)


@dataclass(frozen=True, slots=True)
class Result:
    """The tuned thresholds of a model. failed: the texts without a result, with the reason."""

    model: str
    labels: Tuned
    relations: Tuned | None
    failed: Mapping[str, str]


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Print the thresholds, and what to expect of them."""
    if options.adapter_id:
        raise CommandError("tune: --adapter-id: thresholds are of a model, and not of an adapter")
    with backend.failing_in_one_line("tune"):
        examples = read_gold(options.gold, options.format, options.text_column)
        if options.output and options.output.exists():
            raise ValueError(f"{options.output}: exists; name a new file")
        check_writable([options.output] if options.output else [])
        labels = backend.names(options.labels, "--labels") or sorted(
            {span.label for example in examples for span in example.entities or ()}
        )
        if not labels or len(examples) < 2:
            what = "has no entities; name labels with --labels" if not labels else "has one example; it takes two"
            raise ValueError(f"{options.gold}: {what}")
        fields = backend.request_fields(options)
        check_shared(labels, fields)
    result = asyncio.run(_tuned(options, flags, examples, labels, fields))
    for where, reason in result.failed.items():
        write_line(f"tune: {where}: {reason}")
    tuned = [one for one in (result.labels, result.relations) if one]
    for one in tuned:
        for label in one.missed:
            write_line(f"tune: {label}: the recall is below {options.min_recall} with every threshold")
    checkpoint = flags.get("model") or (result.model if options.url else Settings.load(flags).model)
    row = configuration(result, str(checkpoint))
    if options.output:
        with backend.failing_in_one_line("tune"):
            options.output.write_text(row, encoding="utf-8")
    if options.json:
        sys.stdout.write(msgspec.json.encode(asdict(result)).decode() + "\n")
    else:
        _print(result, row if not options.output else "")
    return NOT_ALL if result.failed or any(one.missed for one in tuned) else 0


def configuration(result: Result, checkpoint: str) -> str:
    """A configuration file with the thresholds, as a row of the setting `models`."""
    row: dict[str, Any] = {"model": checkpoint, "label_thresholds": dict(result.labels.thresholds)}
    if result.relations:
        row["relation_thresholds"] = dict(result.relations.thresholds)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", short_name(result.model)).lstrip(".")[:64] or "model"
    content: str = yaml.safe_dump({"gliner": {"models": {name: row}}}, sort_keys=False, allow_unicode=True)
    return content


async def _tuned(
    options: argparse.Namespace,
    flags: Mapping[str, Any],
    examples: Sequence[Example],
    labels: Sequence[str] | Mapping[str, str],
    fields: Mapping[str, Any],
) -> Result:
    """Thresholds of labels, from candidates of one run; then those of relations, from a run with these thresholds."""
    relations = fields.get("relations") or sorted({link.relation for one in examples for link in one.relations})
    shared = {name: value for name, value in fields.items() if name not in ("relations", "threshold")}
    shared["on_limit"] = "truncate"
    start = _START if options.threshold is None else options.threshold
    failed: dict[str, str] = {}
    async with backend.client(options, flags) as client:
        card = await client.model()
        everything = {"threshold": min(LOWEST_SCORE, start), "multi_label": True, "overlap": "allow"}
        results = await _results(client, examples, labels, {**shared, **everything}, failed)
        texts = [
            Scored(
                frozenset(span for span in example.entities if span.label in labels),
                _by_score((Span(one.start, one.end, one.label), one.label, one.score) for one in result.entities),
            )
            for example, result in results
            if example.entities is not None
        ]
        starts = dict.fromkeys(labels, start)
        resolve = _resolution(card.tasks, nested=options.nested)
        of_labels = await asyncio.to_thread(tune, texts, starts, resolve, options.min_recall)
        of_relations = None
        if relations and "relations" in card.tasks:
            described = labels if isinstance(labels, Mapping) else {label: label for label in labels}
            chosen = {**starts, **of_labels.thresholds}
            with_thresholds = {name: {"description": described[name], "threshold": chosen[name]} for name in described}
            start = _START if options.relation_threshold is None else options.relation_threshold
            more = {"relations": relations, "relation_threshold": min(LOWEST_SCORE, start)}
            results = await _results(client, examples, with_thresholds, {**shared, **more}, failed)
            of_relations = await _tuned_relations(results, dict.fromkeys(relations, start), options.min_recall)
    return Result(card.model, of_labels, of_relations, failed)


async def _tuned_relations(
    results: Sequence[tuple[Example, Any]], starts: Mapping[str, float], min_recall: float
) -> Tuned | None:
    """Thresholds of relations; None, and a line, if none is known often enough. starts: their thresholds now."""
    linked = [
        Scored(
            frozenset(link for link in example.relations if link.relation in starts),
            _by_score(
                (Link(folded(one.head.text), one.relation, folded(one.tail.text)), one.relation, one.score)
                for one in result.relations
            ),
        )
        for example, result in results
    ]
    if not known_enough(linked, starts):
        write_line(f"tune: no relation is known {MIN_KNOWN} times; relations keep their threshold")
        return None
    return await asyncio.to_thread(tune, linked, starts, all_links, min_recall)


async def _results(
    client: Any, examples: Sequence[Example], labels: Any, fields: Mapping[str, Any], failed: dict[str, str]
) -> list[tuple[Example, Any]]:
    """The examples with their results. failed: receives the others, with the reason."""
    results = []
    waiting = iter(examples)
    async for outcome in client.extract_many((example.text for example in examples), labels, **fields):
        example = next(waiting)
        if outcome.result is None:
            failed[example.where] = outcome.error.message
        else:
            results.append((example, outcome.result))
    return results


def _by_score(found: Any) -> list[Candidate]:
    """Candidates, the highest score first; of equal values the one with the highest score."""
    best: dict[Any, Candidate] = {}
    for candidate in sorted((Candidate(*one) for one in found), key=lambda one: -one.score):
        best.setdefault(candidate.value, candidate)
    return list(best.values())


def _resolution(tasks: Sequence[str], *, nested: bool) -> Resolve:
    """How the model's server resolves overlaps. Only GLiNER2 models have structures."""
    if "structures" in tasks:
        return flat_spans_of_labels
    return nested_spans if nested else flat_spans


def _print(result: Result, row: str) -> None:
    from gliner_bento.cli import show  # noqa: PLC0415

    console = show.console()
    console.print(result.model)
    for title, tuned in (("entities, exact", result.labels), ("relations", result.relations)):
        if tuned:
            console.print(f"\n{title}: {counted(len(tuned.thresholds), 'threshold')}")
            columns = ["label", "threshold", "F1 before", "fitted", "held out", "change", "95 %"]
            console.print(show.table([*columns, "recall before", "held out", "gold"], _rows(tuned)))
    if row:
        console.print(f"\n{row}", end="", markup=False)


def _rows(tuned: Tuned) -> list[list[str]]:
    rows = []
    for label in [*tuned.start.labels, None]:
        before, fitted, held_out = (
            given.micro if label is None else given.labels[label]
            for given in (tuned.start, tuned.fitted, tuned.held_out)
        )
        threshold = "" if label is None else str(tuned.thresholds.get(label, f"- (fewer than {MIN_KNOWN} known)"))
        change = tuned.change if label is None else tuned.changes[label]
        ratios = [percent(before.f1), percent(fitted.f1), percent(held_out.f1)]
        recalls = [percent(before.recall), percent(held_out.recall)]
        rows.append([label or "all", threshold, *ratios, *shown_change(change), *recalls, str(before.gold)])
    return rows
