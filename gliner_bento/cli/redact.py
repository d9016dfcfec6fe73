"""`gliner-bento redact`: copies of files without the entities that the model and recognizers find in them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import CommandError, add_input_options, add_json
from gliner_bento.cli.restore import read_sealed, write_whole
from gliner_bento.cli.texts import counted
from gliner_bento.documents.base import kind_of
from gliner_bento.files.records.readers import ReadOptions
from gliner_bento.files.records.sources import READABLE, SUFFIXES, UNCOMPRESSED
from gliner_bento.files.redaction.files import (
    Answers,
    RedactionJob,
    RedactionReport,
    find_files,
    listed,
    redact_files,
    restore_files,
)
from gliner_bento.files.redaction.mapping import new_mapping
from gliner_bento.privacy.conversation import Finds
from gliner_bento.privacy.lists import NOTHING, Listed, Lists
from gliner_bento.privacy.personal import lowers_persons, personal_labels, personal_spans
from gliner_bento.privacy.plausible import SURE
from gliner_bento.privacy.recognizers.expressions import ExpressionProcess
from gliner_bento.privacy.spans import LabeledSpan, find_patterns
from gliner_bento.privacy.styles import Placeholders, Replace, hashes, mask, remove
from gliner_bento.process.exits import exit_on_sigterm, write_line
from gliner_bento.redact_types import RedactResponse
from gliner_bento.settings import Settings
from gliner_bento.storage.lists import checked, read_lists
from gliner_bento.storage.scratch import scratch_folder
from gliner_bento.tasks.extraction import BatchResult, Extraction
from gliner_bento.tasks.recognition import enabled
from gliner_bento.tasks.requests import check_shared

KEY_VARIABLE = "GLINER_CLIENT_REDACT_KEY"
NOT_ALL_DONE, ENTITIES_LEFT = 2, 3
PATTERN_SETTINGS = ("recognizers", "phone_regions")
_NOT_SEALED = {
    **{"mapping": None, "restore": None, "check": False, "columns": "text", "keep_columns": None},
    **{"skip_invalid": False, "format": "txt", "scope": "document", "nested": False, "relation_window": None},
}
"""Flags that have no meaning with `--sealed`, with their defaults."""
_WINDOW = 256
"""Maximum number of texts that wait for results. Each may keep a file and its copy open; a process may usually have
1,024 open files."""

EXAMPLES = f"""examples:
  gliner-bento redact letters -o redacted --mapping mapping.jsonl
  gliner-bento redact --restore mapping.jsonl redacted -o restored
  gliner-bento redact customers.csv -o redacted.csv --columns name,note
  {KEY_VARIABLE}=... gliner-bento redact tickets.jsonl -o hashed.jsonl --style hash
  cat letter.txt | gliner-bento redact - --patterns-only
  gliner-bento redact --check redacted --labels person,city --threshold 0.2
  gliner-bento redact a.txt -o b.txt --sealed a.sealed --url localhost:3000

exit codes: 0 done; 1 an argument, a setting, the model or the server is wrong, and one line says which;
{NOT_ALL_DONE} not all done: one line for each file without a copy, line that is left out, column or file that was not
looked at, and text in another language than the model's; {ENTITIES_LEFT} --check has found something"""


_STANDARD_OUTPUT = Path("-")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, and those of `backend`."""
    parser.add_argument("inputs", nargs="+", metavar="FILE|FOLDER|-", help=f"{READABLE}; - for standard input")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="a folder; for one input file, the file to write"
    )
    parser.add_argument(
        "--columns",
        default="text",
        metavar="NAMES",
        help="columns; '*': all, nested ones too (default: text)",
    )
    parser.add_argument("--keep-columns", metavar="NAMES", help="columns that need no look")
    add_input_options(parser)
    parser.add_argument(
        "--format",
        default="txt",
        choices=[suffix[1:] for suffix in SUFFIXES if suffix not in UNCOMPRESSED],
        metavar="SUFFIX",
        help="format of standard input (default: txt)",
    )
    parser.add_argument(
        "--style",
        default="placeholder",
        choices=["placeholder", "mask", "hash", "remove"],
        help=f"[PERSON_1] (default), ****, a hash with the key in {KEY_VARIABLE}, or nothing",
    )
    parser.add_argument(
        "--scope",
        default="document",
        choices=["document", "run"],
        help="names have one placeholder per record (default) or run",
    )
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="write the originals to this file, for --restore")
    parser.add_argument(
        "--sealed",
        type=Path,
        metavar="FILE",
        help="let the server redact a text and seal its originals",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--restore", type=Path, metavar="MAPPING", help="restore redacted files with this mapping")
    mode.add_argument(
        "--check",
        action="store_true",
        help="list what would be redacted; with -o, what is left",
    )
    finders = parser.add_mutually_exclusive_group()
    finders.add_argument("--patterns-only", action="store_true", help="use no model")
    finders.add_argument("--no-patterns", action="store_true", help="redact only what the model finds")
    add_json(parser, "print the report as JSON")
    backend.add_flags(parser, several=False)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Redact, restore or check the inputs."""
    if options.relations or options.relation_threshold is not None:
        raise CommandError("redact: --relations: only entities are redacted")
    if options.output == _STANDARD_OUTPUT:
        if options.inputs != ["-"]:
            raise CommandError("redact: -o -: only for standard input")
        options.output = None
    report = RedactionReport()
    exit_on_sigterm()
    with backend.failing_in_one_line("redact"), _inputs(options) as (inputs, output):
        if options.sealed:
            asyncio.run(_redact_sealed(options, flags, inputs, output, report))
        else:
            _run(options, flags, inputs, output, report)
        if options.inputs == ["-"]:
            report.rename(inputs[0], "-")
    _print(options, report)
    if report.failed or report.skipped or report.unseen or report.warnings or any(report.as_text.values()):
        return NOT_ALL_DONE
    return ENTITIES_LEFT if report.left else 0


def _run(
    options: argparse.Namespace,
    flags: Mapping[str, Any],
    inputs: list[Path],
    output: Path | None,
    report: RedactionReport,
) -> None:
    if output is None and not options.check:
        raise CommandError("redact: -o is required: where to write")
    pattern_flags = {name: value for name, value in flags.items() if name in PATTERN_SETTINGS}
    finders = _Finders(options, pattern_flags)
    model_flags = {name: value for name, value in flags.items() if name not in PATTERN_SETTINGS}
    columns = backend.comma_separated(options.columns, "redact: --columns")
    kept = backend.comma_separated(options.keep_columns, "redact: --keep-columns") if options.keep_columns else []
    if both := set(columns) & set(kept):
        raise CommandError(f"redact: --keep-columns: {min(both)} is also in --columns")
    invalid = report.failed.__setitem__ if options.skip_invalid else None
    read_options = ReadOptions(columns, kept, options.encoding, invalid)
    jobs, report.skipped = find_files(inputs, output, mapping=options.mapping, restore=options.restore)
    if not jobs:
        raise CommandError(f"redact: {', '.join(options.inputs)}: no files to read")
    if options.restore:
        with options.restore.open(encoding="utf-8", errors="surrogateescape") as mapping:
            restore_files(jobs, read_options, mapping, report)
        return
    asyncio.run(_redact(options, model_flags, jobs, read_options, finders, report))


@contextmanager
def _inputs(options: argparse.Namespace) -> Iterator[tuple[list[Path], Path | None]]:
    """The inputs and the output. Standard input becomes a temporary file; its copy goes to -o or standard output."""
    if "-" not in options.inputs:
        yield [Path(name) for name in options.inputs], options.output
        return
    if len(options.inputs) > 1:
        raise CommandError("redact: -: must be the only input")
    with scratch_folder() as folder:
        source, copy = folder / f"stdin.{options.format}", folder / f"stdout.{options.format}"
        source.write_bytes(sys.stdin.buffer.read())
        to_stdout = options.output is None and not options.check
        yield [source], copy if to_stdout else options.output
        if to_stdout and copy.exists():
            sys.stdout.buffer.write(copy.read_bytes())
            sys.stdout.buffer.flush()


class _Finders:
    """What to replace, by the recognizers of the settings, and by the lists of flags and settings. Raises
    `CommandError`."""

    def __init__(self, options: argparse.Namespace, flags: Mapping[str, Any]) -> None:
        settings = Settings.load(flags)
        self.recognizers = () if options.no_patterns else enabled(settings.recognizers)
        self._regions = settings.phone_regions
        self._announced = not options.no_patterns
        self._sure = SURE if options.threshold is None else options.threshold
        self._expressions = ExpressionProcess()
        try:
            own = checked(**backend.list_fields(options))
        except ValueError as error:
            raise CommandError(f"redact: {error}") from None
        self._lists = [lists for lists in (own, read_lists(settings.allow_list, settings.deny_list)) if lists]

    def __bool__(self) -> bool:
        """Whether anything is found without a model."""
        return bool(self.recognizers or self._lists)

    def found(self, text: str, by_model: list[LabeledSpan], *, is_default: bool = False) -> Finds:
        """See `Find`. is_default: whether the model has read the default labels; then what is replaced is the same as
        in `/v1/redact`."""
        spans = [*by_model, *find_patterns(text, self.recognizers, self._regions)]
        if is_default:
            spans = personal_spans(text, spans, announced=self._announced, sure=self._sure)
        return Finds(spans, sum((self._listed(lists, text) for lists in self._lists), NOTHING))

    def _listed(self, lists: Lists, text: str) -> Listed:
        expressions = [entry.expression for _, entry in lists.patterns]
        (spans,) = self._expressions.spans(expressions, [text]) if expressions else ([],)
        return lists.listed(text, spans)


async def _redact(
    options: argparse.Namespace,
    flags: Mapping[str, Any],
    jobs: list[RedactionJob],
    read_options: ReadOptions,
    finders: _Finders,
    report: RedactionReport,
) -> None:
    """Redact, then check. The model takes part in the check if --labels is given."""
    writes = any(job.target for job in jobs)
    model_checks = bool(options.labels) and not options.patterns_only
    model_redacts = writes and not options.patterns_only
    if options.check and not finders and not model_checks:
        raise CommandError("redact: --check: --no-patterns leaves nothing to look for without --labels")
    process = partial(redact_files, options=read_options, styles=_styles(options), report=report)
    find = partial(finders.found, is_default=model_redacts and not options.labels)
    with new_mapping(options.mapping) if writes and options.mapping else nullcontext() as mapping:
        async with _answers(options, flags, finders, by_model=model_checks or model_redacts) as answers:
            if writes:
                await process(jobs, answers=answers, find=find, mapping=mapping)
            if options.check:
                redacted = replace(report, unseen={**report.unseen}, warnings={**report.warnings})
                files = [file for job in jobs for file in job.copies or [job.source]]
                checks = [RedactionJob(file, None, file.name) for file in files if file.path.exists()]
                checked_by = answers if model_checks else _empty_results
                await process(checks, answers=checked_by, find=finders.found, mapping=None)
                if writes:
                    # The same files are checked, of which the same is not looked at.
                    report.files, report.records = redacted.files, redacted.records
                    report.unseen, report.warnings = redacted.unseen, redacted.warnings


@asynccontextmanager
async def _answers(
    options: argparse.Namespace, flags: Mapping[str, Any], finders: _Finders, *, by_model: bool
) -> AsyncIterator[Answers]:
    """A function that returns the model's results for texts; if not `by_model`, empty results."""
    if not by_model:
        yield _empty_results
        return
    given = backend.names(options.labels, "--labels")
    fields = {**backend.request_fields(options), "across_empty_lines": True}  # see `spans_of`
    check_shared(given or ["person"], fields)
    async with backend.client(options, flags) as client:
        labels = given or await _default_labels(client, options, flags, finders)
        yield lambda texts: client.extract_many(texts, labels, window=_WINDOW, **fields)


async def _default_labels(
    client: Any, options: argparse.Namespace, flags: Mapping[str, Any], finders: _Finders
) -> Mapping[str, Any]:
    """As those of `/v1/redact`. The thresholds of another server are not known: they count as not set."""
    if options.url:
        max_labels, lowered = (await client.model()).max_labels, options.threshold is None
    else:
        settings = Settings.load(flags)
        max_labels = settings.max_labels
        lowered = lowers_persons(options.threshold, settings.default_threshold, settings.label_thresholds)
    return personal_labels(finders.recognizers, max_labels=max_labels, lowered=lowered)


async def _empty_results(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
    for _ in texts:
        yield BatchResult(Extraction(()))


async def _redact_sealed(
    options: argparse.Namespace,
    flags: Mapping[str, Any],
    inputs: list[Path],
    output: Path | None,
    report: RedactionReport,
) -> None:
    """Let the server redact one text. The sealed mapping is on the disk before the redacted text."""
    for name, default in _NOT_SEALED.items():
        if getattr(options, name) != default:
            raise CommandError(f"redact: --{name.replace('_', '-')}: not with --sealed")
    if not options.url:
        raise CommandError("redact: --sealed: add --url: the server that seals the originals")
    if options.style not in ("placeholder", "hash"):
        raise CommandError(f"redact: --sealed: the style {options.style} cannot be restored")
    if len(inputs) > 1 or output is None:
        raise CommandError("redact: --sealed: give one file with -o, or - for standard input")
    fields = {
        "labels": [] if options.patterns_only else backend.names(options.labels, "--labels"),
        "recognizers": False if options.no_patterns else None,
        "threshold": options.threshold,
        "adapter_id": options.adapter_id,
        "style": options.style,
        "mapping": read_sealed(options.sealed),
        **backend.list_fields(options),
    }
    if kind_of(inputs[0].name):
        raise CommandError("redact: --sealed: give a text file, not a document")
    text = inputs[0].read_bytes().decode(options.encoding)
    async with backend.client(options, flags) as client:
        answer: RedactResponse = await client.redact([text], **fields)
    if len(answer.texts) != 1 or not answer.mapping:
        raise CommandError("redact: the server's answer has no text, or no mapping")
    write_whole(options.sealed, f"{answer.mapping}\n".encode(), mode=0o600)
    write_whole(output, answer.texts[0].encode(options.encoding))
    report.files = 1
    report.redacted.update(answer.counts)
    if answer.warnings:
        report.warnings[str(inputs[0])] = Counter(warning.message for warning in answer.warnings)


def _styles(options: argparse.Namespace) -> Callable[[], Replace]:
    """A function that makes the `Replace` of a document. Raises `CommandError`."""
    if options.style == "placeholder":
        shared = Placeholders()
        return Placeholders if options.scope == "document" else lambda: shared
    if options.style == "hash":
        key = os.environ.get(KEY_VARIABLE, "")
        if len(key) < 16:
            raise CommandError(f"redact: --style hash: {KEY_VARIABLE} must have a key of at least 16 characters")
        keyed = hashes(key.encode())
        return lambda: keyed
    replace = mask if options.style == "mask" else remove
    return lambda: replace


def _print_lines(report: RedactionReport) -> None:
    """A line for each thing that was not done or not looked at."""
    for path, reason in report.failed.items():
        write_line(f"redact: {path}: {reason}")
    for path, names in report.unseen.items():
        hint = "" if kind_of(path) else "; choose with --columns ('*': all)"
        write_line(f"redact: {path}: not looked at: {listed(map(repr, names))}{hint}")
    for path, reason in report.as_text.items():
        if reason:
            write_line(f"redact: {path}: only its text is written: {reason}")
    for path, warnings in report.warnings.items():
        for message, number in warnings.items():
            write_line(f"redact: {path}: {counted(number, 'text')}: {message}")


def _print(options: argparse.Namespace, report: RedactionReport) -> None:
    _print_lines(report)
    # Standard output is for the copy of standard input.
    stream = sys.stderr if options.inputs == ["-"] and not options.check else sys.stdout
    if options.json:
        stream.write(json.dumps(asdict(report) | {"redacted": report.redacted}, ensure_ascii=False) + "\n")
        return
    for entity in report.left:
        stream.write(f"{entity.file}:{entity.place or entity.line}: {entity.label}: {' '.join(entity.text.split())}\n")
    if report.skipped:
        stream.write(f"skipped (hidden, a linked folder, or not a readable format): {', '.join(report.skipped)}\n")
    if options.check:
        model = " and the model" if options.labels and not options.patterns_only else ""
        stream.write(f"{counted(len(report.left), 'match', 'matches')} of the recognizers{model}\n")
    if options.output or not options.check:
        counts = ", ".join(f"{number} {label}" for label, number in report.redacted.most_common()) or "nothing replaced"
        texts = f"; of {counted(len(report.as_text), 'document')} only the text is written" if report.as_text else ""
        outcome = ", restored" if options.restore else f": {counts}{texts}"
        stream.write(f"{counted(report.files, 'file')}{outcome}\n")
