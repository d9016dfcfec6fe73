"""Redacts files and folders: finds the files, and writes a redacted copy of each."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import io
import json
import os
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

from gliner_bento.errors import one_line
from gliner_bento.files.records.columns import pyarrow
from gliner_bento.files.records.readers import FILE_ERRORS, Reading, opened
from gliner_bento.files.records.sources import Source, refuse_devices, refuse_inputs, sources
from gliner_bento.files.redaction.parquet_file import ParquetFile
from gliner_bento.files.redaction.spans import LabeledSpan, merged
from gliner_bento.files.redaction.styles import PLACEHOLDER, Replace
from gliner_bento.files.redaction.text_file import Entry, TextFile, TextRecord
from gliner_bento.storage.files import file_lock
from gliner_bento.tasks.extraction import LIMIT_WARNINGS, BatchResult

_FAULTS = (*FILE_ERRORS, ValueError)

Answers = Callable[[Iterable[str]], AsyncIterator[BatchResult]]
"""Returns a result or an error for each text, in order."""

Find = Callable[[str], Iterable[LabeledSpan]]
"""Finds spans in a text without a model."""


@dataclass(frozen=True, slots=True)
class RedactionJob:
    """A file to redact. copy: None: it is only checked. name: in mappings, the path below the input folder."""

    source: Source
    copy: Source | None
    name: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """A span that `--check` found in a file. line: of Parquet, the row."""

    file: str
    line: int
    label: str
    text: str


@dataclass(slots=True)
class RedactionReport:
    """The result of a run. redacted: replacements by label. failed: files without a copy, with the reason."""

    files: int = 0
    records: int = 0
    redacted: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    left: list[Leftover] = field(default_factory=list)

    def fail(self, job: RedactionJob, error: Exception) -> None:
        """Record that a file has no copy, or only that of an earlier run."""
        kept = f"; {job.copy.path} is of an earlier run" if job.copy and job.copy.path.is_file() else ""
        self.failed[str(job.source.path)] = f"{one_line(error)}{kept}"


def find_files(
    inputs: Sequence[Path], output: Path | None, *, mapping: Path | None = None, restore: Path | None = None
) -> tuple[list[RedactionJob], list[str]]:
    """The jobs, and the paths in folders that are skipped. Raises `StartupError`, ValueError.

    output: a file for one input file, else a folder; None: nothing is written. mapping, restore: further files that are
    written and read.
    """
    jobs: list[RedactionJob] = []
    skipped: list[str] = []
    alone = len(inputs) == 1 and inputs[0].is_file() and not (output and output.is_dir())
    for given in inputs:
        in_folder = given.is_dir()
        if in_folder and output and output.resolve().is_relative_to(given.resolve()):
            raise ValueError(f"{output}: is inside the input {given}")
        for source in sources([str(given)], skipped=skipped):
            name = source.name if in_folder else source.path.name
            copy = replace(source, path=output if alone else output / name) if output else None
            jobs.append(RedactionJob(source, copy, name))
            if source.kind == "parquet":
                pyarrow()
    names = Counter(job.name for job in jobs)
    if repeated := next((name for name, number in names.items() if number > 1), None):
        raise ValueError(f"{repeated}: two inputs have this name")
    read = [job.source.path for job in jobs]
    written = [job.copy.path for job in jobs if job.copy]
    refuse_devices(written)
    refuse_inputs(filter(None, [*written, mapping]), filter(None, [*read, restore]))
    return jobs, skipped


class _Copy:
    """A file and its copy, which is renamed to its final name when it is complete. Raises OSError, ValueError."""

    def __init__(self, job: RedactionJob, reading: Reading) -> None:
        self.job = job
        self.failed = self._complete = False
        with contextlib.ExitStack() as stack:
            out: IO[bytes] = io.BytesIO()
            if job.copy:
                path = job.copy.path
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.{os.getpid()}.part")
                stack.callback(part.unlink, missing_ok=True)
                stack.push(partial(self._name, part, path))
                out = stack.enter_context(_created(part, compressed=job.copy.gzip))
            self.content: TextFile | ParquetFile
            if job.source.kind == "parquet":
                self.content = ParquetFile(stack.enter_context(opened(job.source)), out, reading)
            else:
                self.content = TextFile(job.source, out, reading)
            self._stack = stack.pop_all()

    def _name(self, part: Path, path: Path, fault: type[BaseException] | None, *_: object) -> None:
        if self._complete and not fault:
            part.replace(path)

    def finish(self) -> None:
        """Complete the copy."""
        self.content.close()
        self._complete = True
        self._stack.close()

    def discard(self) -> None:
        """Remove the unfinished copy."""
        self.failed = True
        with contextlib.suppress(OSError):  # the disk is full
            self._stack.close()


def _remove_unfinished(jobs: Sequence[RedactionJob]) -> None:
    """Remove unfinished copies of killed runs: files with their names that no process has locked."""
    outputs = {job.copy.path for job in jobs if job.copy}
    for folder in {output.parent for output in outputs if output.parent.is_dir()}:
        for path in [*folder.glob(".*.part")]:
            name = re.fullmatch(r"\.(.+)\.\d+\.part", path.name)
            if name and folder / name[1] in outputs and path.is_file():
                with contextlib.suppress(BlockingIOError), file_lock(path, wait=False):
                    path.unlink()


@contextlib.contextmanager
def _created(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed; see `_remove_unfinished`
        if compressed:
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as inside:
                yield inside  # type: ignore[misc]
        else:
            yield file


@dataclass(eq=False, slots=True)
class _Step:
    """A record of a file and the model's results. record: None: the end of the file."""

    copy: _Copy
    record: TextRecord | None = None
    results: list[BatchResult] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The texts for the model. If a copy is checked, spaces replace its placeholders."""
        texts = [one.text for one in self.record.fields] if self.record else []
        return texts if self.copy.job.copy else [PLACEHOLDER.sub(_blank, text) for text in texts]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


async def redact_files(
    jobs: Sequence[RedactionJob],
    reading: Reading,
    styles: Callable[[], Replace],
    answers: Answers,
    *,
    patterns: Find | None,
    mapping: IO[str] | None,
    report: RedactionReport,
) -> None:
    """Write the redacted copies. A file with an error has none, and the others are not affected.

    A job without a copy is checked: what would be redacted is reported. styles: makes the `Replace` of a document (a
    text file, or a record). patterns: finds further spans.
    """
    _remove_unfinished(jobs)
    copies: set[_Copy] = set()
    try:
        async for step in _answered(_steps(jobs, reading, report, copies), answers):
            copy = step.copy
            if copy.failed:
                continue
            try:
                if step.record is None:
                    copy.finish()
                    copies.remove(copy)
                    report.files += 1
                elif copy.job.copy is None:
                    report.left += _leftovers(step, patterns)
                else:
                    for entry in copy.content.redact(step.record, _spans(step, patterns), styles()):
                        report.redacted[entry["label"]] += 1
                        if mapping:
                            mapping.write(json.dumps({"file": copy.job.name, **entry}, ensure_ascii=False) + "\n")
                    report.records += 1
            except _FAULTS as error:
                copy.discard()
                report.fail(copy.job, error)
    finally:
        for copy in copies:
            copy.discard()


def _steps(
    jobs: Iterable[RedactionJob], reading: Reading, report: RedactionReport, copies: set[_Copy]
) -> Iterator[_Step]:
    """A step for each record of all files. copies: gets the copies that are not finished."""
    for job in jobs:
        copy = None
        try:
            copy = _Copy(job, reading)
            copies.add(copy)
            for record in copy.content.records():
                yield _Step(copy, record)
                if copy.failed:
                    break
            else:
                yield _Step(copy)
        except _FAULTS as error:
            if copy:
                copy.discard()
            report.fail(job, error)


async def _answered(steps: Iterator[_Step], answers: Answers) -> AsyncIterator[_Step]:
    """The steps in order, with their results."""
    waiting: deque[_Step] = deque()

    def texts() -> Iterator[str]:
        for step in steps:
            waiting.append(step)
            yield from step.texts

    async for result in answers(texts()):
        while not waiting[0].texts:
            yield waiting.popleft()
        waiting[0].results.append(result)
        if len(waiting[0].results) == len(waiting[0].texts):
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


def _spans(step: _Step, patterns: Find | None) -> list[list[LabeledSpan]]:
    """The spans of each text of a record. Raises ValueError for an error, and for a result that may be incomplete."""
    assert step.record
    all_spans = []
    for field_, text, result in zip(step.record.fields, step.texts, step.results, strict=True):
        if result.result is None:
            raise ValueError(result.error.message if result.error else "no result")
        if result.result.truncated:
            raise ValueError("the model has read only the beginning of the text")
        if LIMIT_WARNINGS & {warning.code for warning in result.result.warnings}:
            raise ValueError("the server returned only a part of the entities, see max_entities")
        if not result.result.is_of(text):
            raise ValueError("the server returned an entity that is not in the text at its offsets")
        spans = [LabeledSpan(one.start, one.end, one.label) for one in result.result.entities]
        all_spans.append(merged([*spans, *(patterns(field_.text) if patterns else [])]))
    return all_spans


def _leftovers(step: _Step, patterns: Find | None) -> Iterator[Leftover]:
    assert step.record
    path, raw = str(step.copy.job.source.path), step.record.raw
    for one, spans in zip(step.record.fields, _spans(step, patterns), strict=True):
        for span in spans:
            lines = raw.count("\n", 0, one.in_record(span).start) if isinstance(raw, str) else 0
            yield Leftover(path, step.record.line + lines, span.label, one.text[span.start : span.end])


def restore_files(
    jobs: Sequence[RedactionJob], reading: Reading, mapping: Iterable[str], report: RedactionReport
) -> None:
    """Write the originals of redacted files. A file with an error has none. Raises ValueError for a bad mapping."""
    of_file: dict[str, list[Entry]] = {}
    for number, line in enumerate(mapping, 1):
        try:
            entry = json.loads(line)
            of_file.setdefault(entry.pop("file"), []).append(entry)
        except (ValueError, KeyError, AttributeError):
            raise ValueError(f"line {number}: not a line of a mapping") from None
    _remove_unfinished(jobs)
    alone = next(iter(of_file.values())) if len(of_file) == len(jobs) == 1 else []
    for job in jobs:
        copy = None
        try:
            copy = _Copy(job, reading)
            copy.content.restore(of_file.get(job.name, alone))
            copy.finish()
            report.files += 1
        except (*_FAULTS, TypeError, KeyError) as error:
            report.fail(job, error)
        finally:
            if copy:
                copy.discard()
