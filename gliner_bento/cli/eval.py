"""`gliner-bento eval`: how good a model's predictions are, on examples whose entities are known."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import add_json
from gliner_bento.cli.texts import counted
from gliner_bento.files.evaluation.gold import Example, Link, Span, folded
from gliner_bento.files.evaluation.readers import KINDS, SUFFIXES, read_gold
from gliner_bento.files.evaluation.report import Prediction, Report, judge, stored_report
from gliner_bento.process.exits import write_line
from gliner_bento.tasks.extraction import ExtractResponse
from gliner_bento.tasks.requests import check_shared

if TYPE_CHECKING:
    from gliner_bento.files.evaluation.scores import Score, Scores

EXAMPLES = """examples:
  gliner-bento eval gold.jsonl
  gliner-bento eval test.conll --labels @labels.yaml --threshold 0.4 --min-f1 0.8
  gliner-bento eval export.json --url http://localhost:3000 --json >before.json
  gliner-bento eval export.json --compare before.json

exit codes: 0 done; 1 an argument, the examples, the model or the server is wrong, and one line says which; 2 the F1 of
all entities, exact, is below --min-f1, or a text has no result, one line each"""

BELOW = 2
_MOST_CONFUSED = 20


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, and those of `backend`."""
    parser.add_argument("gold", type=Path, metavar="GOLD", help=f"examples: {', '.join(SUFFIXES)}")
    parser.add_argument("--format", choices=KINDS, help="default: by the suffix of GOLD")
    parser.add_argument("--text-column", default="text", metavar="NAME", help="field with the text (default: text)")
    parser.add_argument("--min-f1", type=_fraction, metavar="X", help="exit with code 2 below this F1, 0 to 1")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="output of an earlier run with --json")
    add_json(parser, "print the report as JSON")
    backend.add_flags(parser, several=False)


def _fraction(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1: {given}")
    return value


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Print how good the predictions are."""
    with backend.failing_in_one_line("eval"):
        examples = read_gold(options.gold, options.format, options.text_column)
        before = stored_report(options.compare) if options.compare else None
        labels = backend.names(options.labels, "--labels") or sorted(
            {span.label for example in examples for span in example.entities}
        )
        if not labels:
            raise ValueError(f"{options.gold}: has no entities; name labels with --labels")
        fields = backend.request_fields(options)
        check_shared(labels, fields)
    report = asyncio.run(_evaluate(options, flags, examples, labels, fields))
    for where, reason in report.failed.items():
        write_line(f"eval: {where}: {reason}")
    for message, number in report.warnings.items():
        write_line(f"eval: {counted(number, 'text')}: {message}")
    for label, number in report.left_out.items():
        write_line(f"eval: not asked for, and not scored: {number} {label}")
    if before and before.gold != report.gold:
        write_line(f"eval: {options.compare}: is of other examples")
    _print(report, before, as_json=options.json)
    below = options.min_f1 is not None and (report.exact.micro.f1 or 0.0) < options.min_f1
    return BELOW if below or report.failed else 0


async def _evaluate(
    options: argparse.Namespace,
    flags: Mapping[str, Any],
    examples: Sequence[Example],
    labels: Sequence[str] | Mapping[str, Any],
    fields: dict[str, Any],
) -> Report:
    """The report on the model's predictions. Relations are asked for if the examples or --relations name some."""
    warnings: Counter[str] = Counter()
    async with backend.client(options, flags) as client:
        card = await client.model()
        known = sorted({link.relation for example in examples for link in example.relations})
        if "relations" not in fields and known and "relations" in card.tasks:
            fields = {**fields, "relations": known}
        predictions: list[Prediction | str] = []
        texts = (example.text for example in examples)
        async for outcome in client.extract_many(texts, labels, **fields):
            if outcome.result is None:
                predictions.append(outcome.error.message)
            else:
                predictions.append(_prediction(outcome.result))
                warnings.update(warning.message for warning in outcome.result.warnings)
    return judge(card.model, examples, predictions, list(labels), list(fields.get("relations", ())), warnings)


def _prediction(result: ExtractResponse) -> Prediction:
    links = ((folded(one.head.text), one.relation, folded(one.tail.text)) for one in result.relations)
    return Prediction(
        frozenset(Span(entity.start, entity.end, entity.label) for entity in result.entities),
        frozenset(Link(*link) for link in links),
    )


def _print(report: Report, before: Report | None, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    from gliner_bento.cli import show  # noqa: PLC0415

    console = show.console()
    console.print(f"{report.model}, {counted(report.texts, 'text')}")
    sections: list[tuple[str, Scores | None, Scores | None]] = [
        ("entities, exact", report.exact, before.exact if before else None),
        ("entities, overlapping", report.overlapping, before.overlapping if before else None),
        ("relations", report.relations, before.relations if before else None),
    ]
    for title, scores, earlier in sections:
        if scores:
            console.print(f"\n{title}")
            columns = ["label", "F1", "95 %", *(["change"] if before else []), "precision", "recall"]
            rows = _rows(scores, earlier, changes=before is not None)
            console.print(show.table([*columns, "right", "predicted", "gold"], rows))
    wrong = [one for one in report.confusion if one.gold != one.predicted]
    if wrong:
        console.print("\nwrong")
        rows = [[one.gold or "-", one.predicted or "-", str(one.count)] for one in wrong[:_MOST_CONFUSED]]
        console.print(show.table(["gold", "predicted", "number"], rows))


def _rows(scores: Scores, before: Scores | None, *, changes: bool) -> list[list[str]]:
    """A row for each label, and one for all. changes: whether there is a column with the change of F1."""
    earlier = before.labels if before else {}
    rows = [_row(label, score, earlier.get(label), changes) for label, score in scores.labels.items()]
    return [*rows, _row("all", scores.micro, before.micro if before else None, changes)]


def _row(label: str, score: Score, before: Score | None, changes: bool) -> list[str]:
    interval = "-".join(map(_percent, score.f1_interval)) if score.f1_interval else "-"
    change = "-"
    if before and before.f1 is not None and score.f1 is not None:
        change = f"{(score.f1 - before.f1) * 100:+.1f}"
    ratios = _percent(score.precision), _percent(score.recall)
    counts = map(str, (score.right, score.predicted, score.gold))
    return [label, _percent(score.f1), interval, *([change] if changes else []), *ratios, *counts]


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.1f}"
