"""Files and folders to redact: which there are, where their copies go, and the run over all of them."""

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
from pathlib import Path
from typing import IO

from gliner_bento.errors import one_line
from gliner_bento.files.records.columns import pyarrow
from gliner_bento.files.records.readers import FILE_ERRORS, Reading, opened
from gliner_bento.files.records.sources import Source, refuse_inputs, sources
from gliner_bento.files.redaction.parquet_file import ParquetFile
from gliner_bento.files.redaction.records import Record
from gliner_bento.files.redaction.spans import Span
from gliner_bento.files.redaction.styles import Replace
from gliner_bento.files.redaction.text_file import Entry, Finding, TextFile
from gliner_bento.storage.files import file_lock
from gliner_bento.types import LIMIT_WARNINGS, BatchResult

_FAULTS = (*FILE_ERRORS, ValueError)

Answers = Callable[[Iterable[str]], AsyncIterator[BatchResult]]
"""A result or an error for each text, in order."""

Find = Callable[[str], Iterable[Span]]
"""What is found in a text without a model."""


@dataclass(frozen=True, slots=True)
class Job:
    """A file to read, the copy to write, and its name in mappings: the path below the input folder."""

    source: Source
    output: Path | None
    name: str

    @property
    def written(self) -> Source | None:
        """The copy; compressed if its name says so."""
        return replace(self.source, path=self.output, gzip=self.output.suffix.lower() == ".gz") if self.output else None


@dataclass(slots=True)
class Report:
    """Of a run. redacted: replacements by label. failed: files without a copy, with the reason. left: `--check`."""

    files: int = 0
    records: int = 0
    redacted: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    left: list[tuple[str, Finding]] = field(default_factory=list)


def find_files(
    inputs: Sequence[Path], output: Path | None, *, mapping: Path | None = None, restore: Path | None = None
) -> tuple[list[Job], list[str]]:
    """The jobs, and what is in folders and is not read. Raises `StartupError`, ValueError.

    output: a file for one input file, else a folder; None: nothing is written. mapping: written too. restore: read too.
    """
    jobs: list[Job] = []
    skipped: list[str] = []
    alone = len(inputs) == 1 and inputs[0].is_file() and not (output and output.is_dir())
    for given in inputs:
        in_folder = given.is_dir()
        if in_folder and output and output.resolve().is_relative_to(given.resolve()):
            raise ValueError(f"{output}: is inside the input {given}")
        for source in sources([str(given)], skipped=skipped):
            name = source.name if in_folder else source.path.name
            jobs.append(Job(source, output if alone or not output else output / name, name))
            if source.kind == "parquet":
                pyarrow()
    names = Counter(job.name for job in jobs)
    if repeated := next((name for name, number in names.items() if number > 1), None):
        raise ValueError(f"{repeated}: two inputs have this name")
    read = [job.source.path for job in jobs]
    refuse_inputs(filter(None, [*(job.output for job in jobs), mapping]), filter(None, [*read, restore]))
    return jobs, skipped


class _Copy:
    """A file and the copy that is made of it, which appears complete or not at all. Raises OSError, ValueError."""

    def __init__(self, job: Job, reading: Reading) -> None:
        self.job = job
        self.error: str | None = None
        self._stack = contextlib.ExitStack()
        self._temporary: Path | None = None
        with contextlib.ExitStack() as stack:
            self._open = contextlib.ExitStack()
            stack.callback(self._open.close)
            out: IO[bytes] = io.BytesIO()
            if job.output and job.written:
                job.output.parent.mkdir(parents=True, exist_ok=True)
                self._temporary = job.output.with_name(f".{job.output.name}.{os.getpid()}.part")
                stack.callback(self._temporary.unlink, missing_ok=True)
                out = self._open.enter_context(_created(self._temporary, compressed=job.written.gzip))
            self.content: TextFile | ParquetFile
            if job.source.kind == "parquet":
                self.content = ParquetFile(self._open.enter_context(opened(job.source)), out, reading)
            else:
                self.content = TextFile(job.source, out, reading)
            self._stack = stack.pop_all()

    def finish(self) -> None:
        """Give the copy its name."""
        with self._stack:
            self.content.close()
            self._open.close()
            if self._temporary and self.job.output:
                self._temporary.replace(self.job.output)

    def discard(self) -> None:
        """Leave nothing."""
        with contextlib.suppress(OSError):  # of bytes that a full disk does not take
            self._stack.close()


def _remove_unfinished(jobs: Sequence[Job]) -> None:
    """Remove what runs that were killed have left of these copies: the files of their names that no run has locked."""
    outputs = {job.output for job in jobs if job.output}
    for folder in {output.parent for output in outputs if output.parent.is_dir()}:
        for path in [*folder.glob(".*.part")]:
            name = re.fullmatch(r"\.(.+)\.\d+\.part", path.name)
            if name and folder / name[1] in outputs and path.is_file():
                with contextlib.suppress(BlockingIOError), file_lock(path, wait=False):
                    path.unlink()


@contextlib.contextmanager
def _created(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed: another run leaves it alone
        if compressed:
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as inside:
                yield inside  # type: ignore[misc]
        else:
            yield file


@dataclass(eq=False, slots=True)
class _Step:
    """A record of a file and what the model finds in it. Without a record: the end of the file."""

    copy: _Copy
    record: Record | None = None
    results: list[BatchResult] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """What the model reads. A JSON file may have halves of surrogate pairs, which no request can have."""
        return [re.sub("[\ud800-\udfff]", "\ufffd", one.text) for one in self.record.fields] if self.record else []


async def redact_files(
    jobs: Sequence[Job],
    reading: Reading,
    styles: Callable[[], Replace],
    answers: Answers,
    *,
    patterns: Find | None,
    mapping: IO[str] | None,
    report: Report,
) -> None:
    """Write the redacted copies. A file with an error has none, and the others are not affected.

    styles: the replacement of a document (a text file, or a record). patterns: also redact what this finds.
    """
    _remove_unfinished(jobs)
    copies: set[_Copy] = set()
    try:
        async for step in _answered(_steps(jobs, reading, report, copies), answers):
            copy = step.copy
            if copy.error:
                continue
            try:
                if step.record is None:
                    copy.finish()
                    copies.remove(copy)
                    report.files += 1
                    continue
                for entry in copy.content.redact(step.record, _spans(step, patterns), styles()):
                    report.redacted[entry["label"]] += 1
                    if mapping:
                        mapping.write(json.dumps({"file": copy.job.name, **entry}, ensure_ascii=False) + "\n")
                report.records += 1
            except _FAULTS as error:
                copy.error = report.failed[str(copy.job.source.path)] = one_line(error)
                copy.discard()
    finally:
        for copy in copies:
            copy.discard()


def _steps(jobs: Iterable[Job], reading: Reading, report: Report, copies: set[_Copy]) -> Iterator[_Step]:
    """copies: gets those that are begun."""
    for job in jobs:
        copy = None
        try:
            copy = _Copy(job, reading)
            copies.add(copy)
            for record in copy.content.records():
                yield _Step(copy, record)
                if copy.error:
                    break
            else:
                yield _Step(copy)
        except _FAULTS as error:
            report.failed[str(job.source.path)] = one_line(error)
            if copy:
                copy.error = one_line(error)
                copy.discard()


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


def _spans(step: _Step, patterns: Find | None) -> list[list[Span]]:
    """Of each text of the record. Raises ValueError for the error of one, and for a result that may not be whole."""
    found = []
    for text, result in zip(step.texts, step.results, strict=True):
        if result.result is None:
            raise ValueError(result.error.message if result.error else "no result")
        if result.result.truncated:
            raise ValueError("the model has read only the beginning of the text")
        if LIMIT_WARNINGS & {warning.code for warning in result.result.warnings}:
            raise ValueError("the server returned only a part of the entities, see max_entities")
        if any(
            not one.text or one.start < 0 or text[one.start : one.end] != one.text for one in result.result.entities
        ):
            raise ValueError("the server returned an entity that is not in the text at its offsets")
        spans = [Span(one.start, one.end, one.label) for one in result.result.entities]
        found.append([*spans, *(patterns(text) if patterns else [])])
    return found


def restore_files(jobs: Sequence[Job], reading: Reading, mapping: Iterable[str], report: Report) -> None:
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
        try:
            copy = _Copy(job, reading)
            try:
                copy.content.restore(of_file.get(job.name, alone))
            except BaseException:
                copy.discard()
                raise
            copy.finish()
            report.files += 1
        except (*_FAULTS, TypeError) as error:
            report.failed[str(job.source.path)] = one_line(error)


def check_files(jobs: Iterable[Job], reading: Reading, report: Report, find: Find) -> None:
    """Report what `find` finds."""
    for job in jobs:
        try:
            copy = _Copy(Job(job.source, None, job.name), reading)
            try:
                report.left += [(str(job.source.path), one) for one in copy.content.findings(find)]
            finally:
                copy.discard()
            report.files += 1
        except _FAULTS as error:
            report.failed[str(job.source.path)] = one_line(error)
