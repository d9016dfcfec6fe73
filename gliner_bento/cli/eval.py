"""`gliner-bento eval`: how good the predictions of models are, on examples whose entities are known."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import CommandError, add_json
from gliner_bento.cli.score_tables import print_reports
from gliner_bento.cli.texts import counted
from gliner_bento.files.evaluation.gold import Choice, Example, Link, Span, folded
from gliner_bento.files.evaluation.page import Run, page
from gliner_bento.files.evaluation.readers import KINDS, SUFFIXES, read_gold
from gliner_bento.files.evaluation.report import Asked, Prediction, Report, encoded, judge, stored_reports
from gliner_bento.process.exits import write_line
from gliner_bento.settings.field_types import NAMED_MODEL
from gliner_bento.settings.names import flag_name
from gliner_bento.tasks.extraction import ExtractResponse
from gliner_bento.tasks.requests import check_shared

COLUMN_SETTINGS = ("model", "dtype", "quantization")
"""Settings whose flags may be repeated: each combination of their values is measured."""
SETTINGS = tuple(name for name in backend.SETTINGS if name not in COLUMN_SETTINGS)

EXAMPLES = """examples:
  gliner-bento eval gold.jsonl
  gliner-bento eval test.conll --labels @labels.yaml --threshold 0.4 --min-f1 0.8
  gliner-bento eval gold.jsonl --model models/demo --model ./tuned --dtype float32 --dtype bfloat16 --html errors.html
  gliner-bento eval export.json --url http://localhost:3000 --out before.json
  gliner-bento eval export.json --compare before.json

exit codes: 0 done; 1 an argument, the examples, the model or the server is wrong, and one line says which; 2 the F1 of
all entities, exact (without entities: of relations or classes), is below --min-f1, or a text has no result, one line
each"""

BELOW = 2


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, and those of `backend`."""
    add_gold(parser)
    parser.add_argument("--min-f1", type=fraction, metavar="X", help="exit with code 2 below this F1, 0 to 1")
    parser.add_argument("--out", type=Path, metavar="FILE", help="store the report, for --compare")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="what an earlier run stored with --out")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the worst texts as a page; it has the texts")
    add_json(parser, "print the report as JSON")
    for name in COLUMN_SETTINGS:
        what = "checkpoint, or NAME=CHECKPOINT" if name == "model" else "as of `serve`"
        help_text = f"{what}; repeat the flag to compare"
        parser.add_argument(flag_name(name), action="append", default=[], metavar=name.upper(), help=help_text)
    backend.add_flags(parser, several=True, several_models=True)
    backend.add_classify(parser)


def add_gold(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the examples."""
    parser.add_argument("gold", type=Path, metavar="GOLD", help=f"examples: {', '.join(SUFFIXES)}")
    parser.add_argument("--format", choices=KINDS, help="default: by the suffix of GOLD")
    parser.add_argument("--text-column", default="text", metavar="NAME", help="field with the text (default: text)")


def fraction(given: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1: {given}")
    return value


@dataclass(frozen=True, slots=True)
class Column:
    """A model that is measured. name: None: as the model calls itself. options, flags: how it is called."""

    name: str | None
    options: argparse.Namespace
    flags: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Questions:
    """What models are asked. given: whether labels, relations and classifications are named by flags; those of the
    examples are asked only if the model supports them."""

    labels: Sequence[str] | Mapping[str, Any]
    fields: Mapping[str, Any]
    given: frozenset[str]


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Print how good the predictions are."""
    with backend.failing_in_one_line("eval"):
        examples = read_gold(options.gold, options.format, options.text_column)
        before = stored_reports(options.compare) if options.compare else []
        check_writable([path for path in (options.out, options.html) if path], options.gold)
        questions = questions_of(options, examples)
        columns = list(_columns(options, flags))
    runs = [asyncio.run(evaluate(column, examples, questions)) for column in columns]
    reports = [run.report for run in runs]
    for report in reports:
        _write_notes(report, several=len(reports) > 1)
    for report in before:
        if report.gold != reports[0].gold:
            write_line(f"eval: {options.compare}: {report.name}: is of other examples")
    with backend.failing_in_one_line("eval"):
        if options.out:
            options.out.write_bytes(encoded(reports))
        if options.html:
            options.html.write_text(page(options.gold.name, examples, runs), encoding="utf-8", errors="replace")
    if options.json:
        sys.stdout.write(encoded(reports).decode())
    else:
        print_reports(before, reports)
    below = options.min_f1 is not None and any((report.main.micro.f1 or 0.0) < options.min_f1 for report in reports)
    return BELOW if below or any(report.failed for report in reports) else 0


def check_writable(paths: Sequence[Path], *others: Path) -> None:
    """Raise OSError or ValueError for a file that cannot be written, before the model runs. others: are not
    overwritten."""
    taken = [other.resolve() for other in others]
    for path in paths:
        if path.resolve() in taken:
            raise ValueError(f"{path}: would be overwritten")
        taken.append(path.resolve())
        existed = path.exists()
        with path.open("ab"):
            pass
        if not existed:
            os.unlink(path)


def _columns(options: argparse.Namespace, flags: Mapping[str, Any]) -> Iterator[Column]:
    """The models that are measured: on each server, or here in each precision."""
    given = {name: list(dict.fromkeys(getattr(options, name))) for name in COLUMN_SETTINGS}
    if options.url:
        if named := next((name for name in COLUMN_SETTINGS if given[name]), None):
            raise CommandError(f"eval: {flag_name(named)}: is for a model in this process; leave out --url")
        for url, model in product(dict.fromkeys(options.url), dict.fromkeys(options.model_name or [None])):
            parts = [url] * (len(options.url) > 1) + [model] * (len(options.model_name or ()) > 1)
            yield Column(" ".join(parts) or None, _with(options, url=[url], model_name=model), flags)
        return
    chosen = {name: values for name, values in given.items() if values}
    for values in product(*chosen.values()):
        settings = dict(zip(chosen, values, strict=True))
        parts = [value.partition("=")[0] if name == "model" and _is_named(value) else value
                 for name, value in settings.items() if len(chosen[name]) > 1]  # fmt: skip
        if _is_named(settings.get("model", "")):
            settings["models"] = settings.pop("model")
        model_name = options.model_name[0] if options.model_name else None
        yield Column(" ".join(parts) or None, _with(options, model_name=model_name), {**flags, **settings})


def _is_named(model: str) -> bool:
    return re.match(NAMED_MODEL, model) is not None


def _with(options: argparse.Namespace, **changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), **changes})


def questions_of(options: argparse.Namespace, examples: Sequence[Example]) -> Questions:
    """What to ask: what the flags name, and otherwise what the examples have. Raises ValueError."""
    fields = backend.request_fields(options)
    labels = backend.names(options.labels, "--labels")
    given = {name for name, value in (("labels", labels), *fields.items()) if value}
    labels = labels or sorted({span.label for example in examples for span in example.entities or ()})
    if "relations" not in given:
        fields["relations"] = sorted({link.relation for example in examples for link in example.relations})
    if "classifications" not in given:
        fields["classifications"] = _classifications(examples)
    fields = {name: value for name, value in fields.items() if value not in ([], {})}
    if not labels and not {"relations", "classifications"} & fields.keys():
        raise ValueError(f"{options.gold}: has no entities; name labels with --labels")
    check_shared(labels, fields)
    return Questions(labels, fields, frozenset(given))


def _classifications(examples: Sequence[Example]) -> dict[str, Any]:
    """The classifications of the examples, with all labels that occur. One has a label at a time if each example has
    exactly one."""
    classifications = {}
    for question in sorted({question for example in examples for question in example.questions}):
        of_texts = [
            [choice.label for choice in example.choices if choice.question == question]
            for example in examples
            if question in example.questions
        ]
        labels = sorted({label for labels in of_texts for label in labels})
        multi_label = len(labels) < 2 or any(len(labels) != 1 for labels in of_texts)
        if labels:
            classifications[question] = {"labels": labels, "multi_label": multi_label}
    return classifications


async def evaluate(column: Column, examples: Sequence[Example], questions: Questions) -> Run:
    """The predictions of one model, and their scores."""
    warnings: Counter[str] = Counter()
    async with backend.client(column.options, column.flags) as client:
        card = await client.model()
        labels, fields = supported(questions, card.tasks)
        predictions: list[Prediction | str] = []
        texts = (example.text for example in examples)
        async for outcome in client.extract_many(texts, labels or None, **fields):
            if outcome.result is None:
                predictions.append(outcome.error.message)
            else:
                predictions.append(_prediction(outcome.result))
                warnings.update(warning.message for warning in outcome.result.warnings)
    asked = Asked(list(labels), list(fields.get("relations", ())), list(fields.get("classifications", ())))
    return Run(judge(column.name or card.model, examples, predictions, asked, warnings), asked, predictions)


def supported(questions: Questions, tasks: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The labels and fields of requests for a model that supports `tasks`. Raises ValueError if nothing is left."""
    labels: Any = questions.labels if "entities" in tasks or "labels" in questions.given else []
    fields = {
        name: value
        for name, value in questions.fields.items()
        if name not in ("relations", "classifications") or name in tasks or name in questions.given
    }
    if not labels and not {"relations", "classifications"} & fields.keys():
        raise ValueError(f"the model supports {' and '.join(tasks)}, and the examples have nothing of that kind")
    return labels, fields


def _prediction(result: ExtractResponse) -> Prediction:
    links = ((folded(one.head.text), one.relation, folded(one.tail.text)) for one in result.relations)
    choices = ((name, fit.label) for name, classified in result.classifications.items() for fit in classified.labels)
    return Prediction(
        frozenset(Span(entity.start, entity.end, entity.label) for entity in result.entities),
        frozenset(Link(*link) for link in links),
        frozenset(Choice(*choice) for choice in choices),
    )


def _write_notes(report: Report, *, several: bool) -> None:
    """A line for each text without a result, each warning, and each label that is not scored."""
    command = f"eval: {report.name}" if several else "eval"
    for where, reason in report.failed.items():
        write_line(f"{command}: {where}: {reason}")
    for message, number in report.warnings.items():
        write_line(f"{command}: {counted(number, 'text')}: {message}")
    for label, number in report.left_out.items():
        write_line(f"{command}: not asked for, and not scored: {number} {label}")
