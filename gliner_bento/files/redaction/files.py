"""Redacts files and folders: finds the files, and writes a redacted copy of each."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import io
import os
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO

from gliner_bento.errors import LimitExceeded, one_line
from gliner_bento.files.records.columns import pyarrow
from gliner_bento.files.records.readers import FILE_ERRORS, ReadOptions, opened
from gliner_bento.files.records.sources import Source, refuse_devices, refuse_overwriting, sources
from gliner_bento.files.redaction.columns import ALL
from gliner_bento.files.redaction.document_file import DocumentFile, is_text_copy, text_target
from gliner_bento.files.redaction.mapping import Mapping, MappingWriter, read_mapping, replaced_text
from gliner_bento.files.redaction.parquet_file import ParquetFile
from gliner_bento.files.redaction.text_file import TextFile, TextRecord
from gliner_bento.privacy.conversation import Finds, document_spans
from gliner_bento.privacy.recognizers.folding import shown
from gliner_bento.privacy.redact import is_placeholder
from gliner_bento.privacy.spans import LabeledSpan, spans_of
from gliner_bento.privacy.styles import PLACEHOLDER, Replace
from gliner_bento.storage.files import file_lock, sha256, side_file, side_stem
from gliner_bento.tasks.extraction import LIMIT_WARNINGS, BatchResult

_FAULTS = (*FILE_ERRORS, ValueError, LimitExceeded)
_MAX_LISTED = 20
_PART = "gliner-bento-part"
"""Suffix of an unfinished copy: a name that no other program gives a file."""

Answers = Callable[[Iterable[str]], AsyncIterator[BatchResult]]
"""Returns a result or an error for each text, in order."""

Find = Callable[[str, list[LabeledSpan]], Finds]
"""What to replace in a text: gets the text, and what the model has found in it."""


@dataclass(frozen=True, slots=True)
class RedactionJob:
    """A file to redact. target: its copy; None if the file is only checked. name: identifies the file in mappings; the
    file's name, or its path below an input folder."""

    source: Source
    target: Source | None
    name: str

    @property
    def as_text(self) -> RedactionJob:
        """The job of a document whose copy is a text."""
        if self.target is None:
            return self
        target = text_target(self.target)
        return replace(self, target=target, name=self.name + target.path.name.removeprefix(self.target.path.name))

    @property
    def names(self) -> set[str]:
        """The names that its copy may have."""
        return {self.name, self.as_text.name} if self.target and self.target.kind == "document" else {self.name}

    @property
    def copies(self) -> list[Source]:
        """The copies that it may write: of a Word or Excel file, one is a text."""
        if self.target is None:
            return []
        return [self.target, *([text_target(self.target)] if self.target.kind == "document" else [])]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A span that `--check` found in a file. line: number, from 1, of the line or of the Parquet row. place: in a
    document."""

    file: str
    line: int
    label: str
    text: str
    place: str = ""


@dataclass(slots=True)
class RedactionReport:
    """The result of a run. files, records: how many are done. redacted: number of replacements by label.

    failed: files without a copy, records that are left out, and restored files in which something is left, with the
    reason. skipped: paths that are not read. left: what `--check` found.
    unseen: by file, its columns and strings that have texts and are not looked at. warnings: by file, why the model may
    have missed something, with the number of texts. as_text: documents of which only the text is written; for a Word
    or Excel file the reason, else empty.
    """

    files: int = 0
    records: int = 0
    redacted: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    left: list[Leftover] = field(default_factory=list)
    unseen: dict[str, Sequence[str]] = field(default_factory=dict)
    warnings: dict[str, dict[str, int]] = field(default_factory=dict)
    as_text: dict[str, str] = field(default_factory=dict)

    def rename(self, path: Path, name: str) -> None:
        """Call a file by another name."""
        self.failed = {
            place.replace(str(path), name): reason.replace(str(path), name) for place, reason in self.failed.items()
        }
        self.left = [replace(one, file=name) if one.file == str(path) else one for one in self.left]
        self.unseen = {name if place == str(path) else place: unseen for place, unseen in self.unseen.items()}
        self.warnings = {name if place == str(path) else place: counts for place, counts in self.warnings.items()}

    def finish(self, file: _OpenFile) -> None:
        """Count a file that is done, and note what was not looked at."""
        self.files += 1
        path = str(file.job.source.path)
        if file.content.columns.unseen:
            self.unseen[path] = file.content.columns.unseen
        if file.warnings:
            self.warnings[path] = dict(file.warnings)
        if isinstance(file.content, DocumentFile) and file.content.as_text and file.job.target:
            self.as_text[path] = file.content.reason

    def fail(self, job: RedactionJob, error: Exception) -> None:
        """Note why a file has no copy, or only one from an earlier run."""
        old_copy = f"; {job.target.path} is of an earlier run" if job.target and job.target.path.is_file() else ""
        self.failed[str(job.source.path)] = f"{one_line(error)}{old_copy}"


def find_files(
    inputs: Sequence[Path], output: Path | None, *, mapping: Path | None = None, restore: Path | None = None
) -> tuple[list[RedactionJob], list[str]]:
    """The jobs, and the paths in folders that are skipped. Raises `StartupError`, ValueError.

    output: a file if the only input is a file, else a folder; None if nothing is written. mapping: the mapping to
    write. restore: the mapping to read. A file that is written must not be an input, nor be written twice.
    """
    jobs: list[RedactionJob] = []
    skipped: list[str] = []
    to_file = len(inputs) == 1 and inputs[0].is_file() and not (output and output.is_dir())
    for given in inputs:
        in_folder = given.is_dir()
        if in_folder and output and output.resolve().is_relative_to(given.resolve()):
            raise ValueError(f"{output}: is inside the input {given}")
        for source in sources([str(given)], skip=skipped.append, unreadable=skipped.append):
            name = source.name if in_folder else source.path.name
            target: Source | None = None
            if output:
                target = replace(source, path=output if to_file else output / name)
            job = RedactionJob(source, target, name)
            of_text = target is not None and source.kind == "document" and is_text_copy(source, target)
            jobs.append(job.as_text if of_text else job)
            if source.kind == "parquet":
                pyarrow()  # raises if it is not installed
    names = Counter(name for job in jobs if output for name in job.names)
    if repeated := next((name for name, number in names.items() if number > 1), None):
        raise ValueError(f"{repeated}: two inputs have this name")
    read = [job.source.path for job in jobs]
    written = [copy.path for job in jobs for copy in job.copies]
    refuse_devices(written)
    refuse_overwriting(filter(None, [*written, mapping]), filter(None, [*read, restore]))
    return jobs, skipped


class _OpenFile:
    """A file and its copy, which is renamed to its final name when it is complete. Raises OSError, ValueError."""

    def __init__(self, job: RedactionJob, options: ReadOptions) -> None:
        self._job = job
        self.failed = self._complete = False
        self.warnings: Counter[str] = Counter()
        with contextlib.ExitStack() as stack:
            out: IO[bytes] = io.BytesIO()
            if job.target:
                path = job.target.path
                path.parent.mkdir(parents=True, exist_ok=True)
                part = side_file(path.with_name(f".{path.name}"), f"{os.getpid()}.{_PART}")
                created = part.open("xb")
                # At the end, in reverse order: the copy is closed, renamed if it is complete, and else removed.
                stack.callback(part.unlink, missing_ok=True)
                stack.push(partial(self._rename, part))
                out = stack.enter_context(_locked(created, compressed=job.target.gzip))
            self.content: TextFile | ParquetFile | DocumentFile
            if job.source.kind == "parquet":
                self.content = ParquetFile(stack.enter_context(opened(job.source)), out, options)
            elif job.source.kind == "document":
                self.content = DocumentFile(job.source, out, options, job.target)
            else:
                self.content = TextFile(job.source, out, options)
            self._stack = stack.pop_all()

    @property
    def job(self) -> RedactionJob:
        """The job; that of a text, if it has turned out that a document cannot be edited."""
        return self._job.as_text if isinstance(self.content, DocumentFile) and self.content.as_text else self._job

    def _rename(self, part: Path, fault: type[BaseException] | None, *_: object) -> None:
        """Called when the copy has been closed. fault: the type of an error in closing."""
        if self._complete and not fault and self.job.target:
            self._before_rename(part)
            part.replace(self.job.target.path)

    def finish(self, before_rename: Callable[[Path], None] = lambda _: None) -> None:
        """Complete the copy. before_rename: called with the complete file, before it gets its name."""
        self._before_rename = before_rename
        self.content.close()
        self._complete = True
        self._stack.close()

    def discard(self) -> None:
        """Remove the copy if it is not finished."""
        self.failed = True
        with contextlib.suppress(OSError):  # closing the copy writes, and fails if the disk is full
            self._stack.close()


def _remove_unfinished(jobs: Sequence[RedactionJob]) -> None:
    """Remove unfinished copies of killed runs, which no process has locked."""
    stems = {side_stem(job.target.path.with_name(f".{job.target.path.name}")) for job in jobs if job.target}
    for folder in {stem.parent for stem in stems if stem.parent.is_dir()}:
        for path in [*folder.glob(f".*.{_PART}")]:
            name = re.fullmatch(rf"(.+)\.\d+\.{_PART}", path.name)
            if name and folder / name[1] in stems and path.is_file() and not path.is_symlink():
                with contextlib.suppress(BlockingIOError), file_lock(path, wait=False):
                    path.unlink()


@contextlib.contextmanager
def _locked(created: IO[bytes], *, compressed: bool) -> Iterator[IO[bytes]]:
    """The file to write to; locked until it is closed, see `_remove_unfinished`."""
    with created as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if compressed:
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as inside:
                yield inside  # type: ignore[misc]
        else:
            yield file


@dataclass(eq=False, slots=True)
class _Step:
    """A record of a file, with a result of the model for each of its texts. record: None at the end of the file."""

    file: _OpenFile
    record: TextRecord | None = None
    results: list[BatchResult] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The texts for the model, in plain letters. In a file that is only checked, spaces replace placeholders."""
        texts = [shown(field.text) for field in self.record.fields] if self.record else []
        return texts if self.file.job.target else [PLACEHOLDER.sub(_blank, text) for text in texts]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


async def redact_files(
    jobs: Sequence[RedactionJob],
    options: ReadOptions,
    styles: Callable[[], Replace],
    answers: Answers,
    *,
    find: Find,
    mapping: MappingWriter | None,
    report: RedactionReport,
) -> None:
    """Write the redacted copies. A file with an error gets no copy, and the others are not affected.

    For a job without a target, the spans that would be redacted are reported. styles: makes the `Replace` of a document
    (a text file, or a record).
    """
    _remove_unfinished(jobs)
    open_files: set[_OpenFile] = set()
    try:
        async for step in _answered(_steps(jobs, options, report, open_files), answers):
            file = step.file
            if file.failed:
                continue
            try:
                if step.record is None:
                    file.finish(*[partial(mapping.complete, file.job.name)] if mapping else ())
                    open_files.remove(file)
                    report.finish(file)
                elif file.job.target is None:
                    report.left += _leftovers(step, find)
                else:
                    for entry in file.content.redact(step.record, _finds(step, find), styles()):
                        report.redacted[entry["label"]] += 1
                        if mapping:
                            mapping.add(file.job.name, entry)
                report.records += bool(step.record and step.record.fields)
            except _FAULTS as error:
                file.discard()
                report.fail(file.job, error)
    finally:
        for file in open_files:
            file.discard()


def _steps(
    jobs: Iterable[RedactionJob], options: ReadOptions, report: RedactionReport, open_files: set[_OpenFile]
) -> Iterator[_Step]:
    """For each file, a step per record, then one for its end. open_files: gets the files that are opened."""
    for job in jobs:
        file = None
        try:
            file = _OpenFile(job, options)
            open_files.add(file)
            for record in file.content.records():
                yield _Step(file, record)
                if file.failed:
                    break
            else:
                yield _Step(file)
        except _FAULTS as error:
            if file:
                file.discard()
            report.fail(job, error)


async def _answered(steps: Iterator[_Step], answers: Answers) -> AsyncIterator[_Step]:
    """The steps in order, with their results. `answers` reads texts ahead, so steps wait for their results."""
    waiting: deque[_Step] = deque()  # read from `steps` and not yielded

    def texts() -> Iterator[str]:
        for step in steps:
            waiting.append(step)
            yield from step.texts

    async for result in answers(texts()):
        while not waiting[0].texts:  # without texts, a step is complete
            yield waiting.popleft()
        waiting[0].results.append(result)
        if len(waiting[0].results) == len(waiting[0].texts):
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


def _finds(step: _Step, find: Find) -> list[Finds]:
    """What was found in each text of a record. Raises ValueError for an error, and for a result that may be
    incomplete."""
    assert step.record
    finds = []
    for record_field, text, result in zip(step.record.fields, step.texts, step.results, strict=True):
        if result.result is None:
            raise ValueError(result.error.message if result.error else "no result")
        if result.result.truncated:
            raise ValueError("the model has read only the beginning of the text")
        step.file.warnings.update(warning.message for warning in result.result.warnings)
        if LIMIT_WARNINGS & {warning.code for warning in result.result.warnings}:
            raise ValueError("the server returned only a part of the entities, see max_entities")
        if not result.result.is_of(text):
            raise ValueError("the server returned an entity that is not in the text at its offsets")
        found = find(record_field.text, spans_of(text, result.result.entities))
        if record_field.label and any(map(str.isalnum, text)):
            whole = LabeledSpan(0, len(text), record_field.label, by_recognizer=True, score=1.0)
            found = replace(found, spans=[*found.spans, whole])
        finds.append(found)
    return finds


def _leftovers(step: _Step, find: Find) -> Iterator[Leftover]:
    """What would be replaced in a record, in order. Raises ValueError, LimitExceeded."""
    assert step.record
    path, raw, fields = str(step.file.job.source.path), step.record.raw, step.record.fields
    line, position = step.record.line, 0
    spans = document_spans([one.text for one in fields], _finds(step, find))
    for record_field, own in zip(fields, spans, strict=True):
        for span in own:
            if isinstance(raw, str):
                start = record_field.in_record(span).start
                line, position = line + raw.count("\n", position, start), start
            yield Leftover(path, line, span.label, record_field.text[span.start : span.end], record_field.place)


def restore_files(
    jobs: Sequence[RedactionJob], options: ReadOptions, lines: Iterable[str], report: RedactionReport
) -> None:
    """Write the originals of redacted files. Skips a file with an error, and reports what is left in the others.
    lines: of the mapping. Raises ValueError for a bad mapping."""
    mapping = read_mapping(lines)
    options = replace(options, columns=[ALL], kept_columns=())  # whatever was redacted
    _remove_unfinished(jobs)
    # One file to restore and one in the mapping are the same file, even if it has been renamed.
    only_name = next(iter(mapping.names)) if len(mapping.names) == len(jobs) == 1 else ""
    replacements = map(replaced_text, chain.from_iterable(mapping.entries.values()))
    placeholders = [replaced for replaced in replacements if is_placeholder(replaced.replacement)]
    for job in jobs:
        name = job.name if job.name in mapping.names else only_name
        file = None
        try:
            file = _OpenFile(job, options)
            unchanged = mapping.is_whole(name) and mapping.sha256[name] == sha256(job.source.path)
            left = file.content.restore(mapping.entries_of(name), placeholders, unchanged=unchanged)
            file.finish()
        except (*_FAULTS, TypeError, KeyError) as error:
            report.fail(job, error)
        else:
            if fault := _not_restored(mapping, name, left):
                report.failed[str(job.source.path)] = fault
            else:
                report.files += 1
        finally:
            if file:
                file.discard()


def _not_restored(mapping: Mapping, name: str, left: Sequence[str]) -> str:
    """Why a restored file may not be the original; empty if it is. left: see `Restored`."""
    names = listed(left)
    if mapping.sha256 and name in mapping.entries and not mapping.is_whole(name):
        return "the mapping lacks some of its originals" + (f": {names}" if names else "")
    return f"the mapping has no original of {names}" if names else ""


def listed(names: Iterable[str]) -> str:
    """Different names in one line; of many, the first `_MAX_LISTED` and the number of the others."""
    different = list(dict.fromkeys(names))
    more = f" and {len(different) - _MAX_LISTED} more" if len(different) > _MAX_LISTED else ""
    return ", ".join(different[:_MAX_LISTED]) + more
