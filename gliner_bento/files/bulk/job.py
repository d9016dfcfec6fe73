"""A bulk job: reads records, sends their texts, writes results in the order of the input, chunk by chunk.

The content of the output depends on the input and the options alone, not on when a run was killed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from gliner_bento.client import AsyncClient
from gliner_bento.client.calls import Labels
from gliner_bento.client.many import DEFAULT_WINDOW, Sender, Text, in_order
from gliner_bento.errors import InvalidField, StartupError
from gliner_bento.files.bulk.checkpoint import SavedProgress, load, stored
from gliner_bento.files.bulk.side_files import SUFFIXES, locked, refuse_foreign
from gliner_bento.files.records.columns import SCHEMA_COLUMNS, Row, pyarrow, result_columns
from gliner_bento.files.records.readers import ReadOptions, location_of, read
from gliner_bento.files.records.scan import column_check, scan
from gliner_bento.files.records.sources import (
    Source,
    digest,
    left_out,
    left_out_line,
    refuse_devices,
    refuse_overwriting,
    shown,
    sources,
    text_column,
)
from gliner_bento.files.records.writers import FORMATS, ChunkWriter, Csv, JsonLines, Parquet
from gliner_bento.status_types import ModelCard
from gliner_bento.storage.files import side_file, side_stem
from gliner_bento.tasks.extraction import BatchResult
from gliner_bento.tasks.requests import check_shared

CHUNK_RECORDS = 500
PRIORITY = 100
"""Priority of the job's requests: interactive requests of the same tenant are served first."""
_CHUNK_CHARS = 2**24


@dataclass(frozen=True, slots=True)
class Job:
    """A job. inputs: files and folders. output: a path with a suffix of `FORMATS`.

    labels: for records without labels of their own. options: the other fields of each request.
    text_column, labels_column, adapter_column: names of columns. encoding: encoding of text without a byte order mark.
    skip_invalid: leave out an invalid line of JSONL or CSV, instead of its whole file.
    """

    inputs: Sequence[str]
    output: Path
    labels: Labels | None
    options: Mapping[str, Any] = field(default_factory=dict)
    text_column: str = "text"
    labels_column: str | None = None
    adapter_column: str | None = None
    encoding: str = "utf-8"
    skip_invalid: bool = False

    def check(self) -> None:
        """Raise `StartupError` for options with which every record would fail, and for an unusable output path."""
        if not str(self.output).endswith(FORMATS):
            raise StartupError(f"{self.output}: must end in {', '.join(FORMATS)}")
        if not self.output.parent.is_dir():
            raise StartupError(f"{self.output.parent}: no such folder")
        if not self.labels and not self.labels_column and not self.schema_columns:
            raise StartupError("--labels or --labels-column is required, or --classify, or --structures")
        for name in ("relations", *self.schema_columns):
            if self.is_csv and self.options.get(name):
                raise StartupError(f"{self.output}: CSV has a row for each entity, and no {name}; choose .jsonl")
        check_shared(self.labels or (["any"] if self.labels_column else None), self.options)  # any: the column's
        refuse_devices([self.output])
        refuse_overwriting([self.output, *map(self.side_file, SUFFIXES)], (source.path for source in self.sources()))

    def sources(self) -> Iterator[Source]:
        """The input files, in order. Of several inputs, their names include the input. Raises `StartupError`."""
        for source in self._sources():
            yield replace(source, name=str(source.path)) if len(self.inputs) > 1 else source

    def left_out(self) -> dict[str, int]:
        """The numbers of paths in the input folders that are not read, as `sources.left_out`."""
        skipped: list[str] = []
        for _ in self._sources(skipped.append):
            pass
        return left_out(skipped)

    def _sources(self, skip: Callable[[str], None] = lambda _path: None) -> Iterator[Source]:
        return sources(self.inputs, [self.output, side_stem(self.output)], skip)

    def identity(self, model: ModelCard) -> dict[str, Any]:
        """Everything that the output depends on. A job is continued only if this has not changed."""
        return {
            "inputs": list(self.inputs),
            "files": digest(self.sources()),
            "labels": self.labels,
            **self.options,
            "columns": [self.text_column, self.labels_column, self.adapter_column],
            "reading": [self.encoding, self.skip_invalid],
            "model": [model.model, model.fingerprint, model.dtype],
        }

    @property
    def is_csv(self) -> bool:
        """Whether the output is CSV: a row for each entity, without the columns of its record."""
        return self.output.suffix == ".csv"

    @property
    def schema_columns(self) -> list[str]:
        """Columns of the result besides entities and relations."""
        return [name for name in SCHEMA_COLUMNS if self.options.get(name)]

    @property
    def more_columns(self) -> list[str]:
        """Names of the columns with labels and adapters, if any."""
        return [name for name in (self.labels_column, self.adapter_column) if name]

    def read_options(
        self,
        invalid: Callable[[str, str], None],
        not_read: Callable[[str, str], None] = lambda _location, _reason: None,
    ) -> ReadOptions:
        """How the inputs are read. invalid: called for each skipped line; not_read: see `ReadOptions`."""
        return ReadOptions(
            encoding=self.encoding,
            invalid=invalid if self.skip_invalid else None,
            check=column_check(self.text_column, self.more_columns, self.schema_columns),
            not_read=not_read,
        )

    def side_file(self, suffix: str) -> Path:
        """The path of the output with a further suffix."""
        return side_file(self.output, suffix)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a job, in numbers of records. resumed: done by earlier runs. failed: listed in the file `errors`.

    warnings: number of warnings by code. skipped: files, and parts of documents, that cannot be read, with the reason.
    left_out: see `Job.left_out`.
    """

    records: int
    failed: int
    resumed: int
    output: str
    errors: str | None
    warnings: Mapping[str, int]
    skipped: Mapping[str, str]
    left_out: Mapping[str, int]


class _Pending(NamedTuple):
    """A record that waits for its result. file, number: see `SavedProgress`. invalid: errors of the lines that
    were skipped since the record before."""

    file: int
    number: int
    source: Source
    row: Row
    invalid: list[Row]


Progress = Callable[[int, int, int], None]
"""Called with the numbers of done, failed and all records."""


async def run(job: Job, clients: Sequence[AsyncClient], progress: Progress, *, overwrite: bool = False) -> Report:
    """Run the job, or continue it after an earlier run.

    Raises `StartupError` for unusable input, and the errors of `Sender.send` if the servers accept no texts. Another
    run then continues after the last chunk.
    """
    with locked(job.output) as lock_was_left:
        identity = job.identity(await _model(job, clients))
        checkpoint = _begin(job, identity, overwrite=overwrite, lock_was_left=lock_was_left)
        state = _Run(job, checkpoint, progress)
        if not checkpoint.complete:
            sender = Sender([client.send for client in clients], job.labels, {"priority": PRIORITY, **job.options})
            async for result in in_order(state.texts(), sender, DEFAULT_WINDOW * len(clients)):
                state.take(result)
            state.commit(complete=True)
        return state.finish(checkpoint.done)


async def _model(job: Job, clients: Sequence[AsyncClient]) -> ModelCard:
    """The model of all servers. Raises `StartupError` if they differ."""
    first, *others = [await client.model() for client in clients]
    for other in others:
        if (other.model, other.fingerprint, other.dtype) != (first.model, first.fingerprint, first.dtype):
            raise StartupError(
                f"the servers have different models: {first.model} {first.dtype}, {other.model} {other.dtype}"
            )
    for name in ("relations", *SCHEMA_COLUMNS):
        if job.options.get(name) and name not in first.tasks:
            raise StartupError(f"{name}: {first.model} does not support them")
    return first


def _begin(job: Job, identity: dict[str, Any], *, overwrite: bool, lock_was_left: bool) -> SavedProgress:
    """The checkpoint of an earlier run, or a new one. Raises `StartupError`. lock_was_left: by a killed run."""
    path, unfinished = job.side_file("checkpoint"), job.side_file("unfinished")
    written = [job.output, job.side_file("errors.jsonl")]
    if not overwrite:
        if checkpoint := load(path, identity):
            return checkpoint
        if existing := next((file for file in (*written, unfinished) if file.exists()), None):
            raise StartupError(f"{existing}: exists; choose another name, or --overwrite")
    invalid: list[str] = []
    not_read: dict[str, str] = {}
    scanned = scan(
        job.sources(),
        job.read_options(lambda location, _: invalid.append(location), not_read.__setitem__),
        [job.text_column, *job.more_columns],
        typed=job.output.suffix == ".parquet",
        more=job.schema_columns,
    )
    if not scanned.records:
        nothing = f"{', '.join(job.inputs)}: no records"
        nothing += f"; {left_out_line(counts)}" if (counts := job.left_out()) else ""
        reason = next(iter(scanned.skipped.values()), nothing)
        raise StartupError(reason)
    # Invalid records count too, except in files that are skipped.
    files_of_invalid = [location.rpartition(": ")[0] for location in invalid]
    records = scanned.records + sum(file not in scanned.skipped for file in files_of_invalid)
    schema = None if scanned.schema is None else bytes(scanned.schema.serialize()).hex()
    skipped = scanned.skipped | {location: f"{location}: {reason}" for location, reason in not_read.items()}
    checkpoint = SavedProgress(identity, records, skipped, schema)
    if not stored(path):
        refuse_foreign(job.output, left=lock_was_left)
    for file in (*written, unfinished, path):  # the checkpoint last: it shows whose the others are
        file.unlink(missing_ok=True)
    checkpoint.save(path)
    return checkpoint


class _Run:
    """The state of a run: records that wait for their results, and results of the current chunk."""

    def __init__(self, job: Job, checkpoint: SavedProgress, progress: Progress) -> None:
        self._job, self._checkpoint, self._progress = job, checkpoint, progress
        self._pending: deque[_Pending] = deque()
        self._rows: list[Row] = []
        self._errors: list[Row] = []
        self._chars = 0
        self._warnings: Counter[str] = Counter()
        self._next = checkpoint.file, checkpoint.number  # file and number after the last record with a result
        self._invalid: list[Row] = []  # errors of the lines after the last record that was read
        self._error_lines = JsonLines(job.side_file("errors.jsonl"))
        self._writer = self._new_writer()
        if not checkpoint.complete:
            self._writer.resume(checkpoint.output)
            self._error_lines.resume(checkpoint.errors)
        progress(checkpoint.done, checkpoint.failed, checkpoint.records)

    def _new_writer(self) -> ChunkWriter:
        unfinished = self._job.side_file("unfinished")
        if self._checkpoint.schema is None:
            writer: type[ChunkWriter] = Csv if self._job.is_csv else JsonLines
            return writer(self._job.output, unfinished)
        pa = pyarrow()
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self._checkpoint.schema)))
        return Parquet(self._job.output, unfinished, schema)

    def texts(self) -> Iterator[Text]:
        """The texts after the checkpoint, each with its record's own labels and adapter."""
        options = self._job.read_options(self._skip)
        for file, source in enumerate(self._job.sources()):
            if file < self._checkpoint.file or source.shown in self._checkpoint.skipped:
                continue
            start = self._checkpoint.number if file == self._checkpoint.file else 0
            for number, row in read(source, start, options):
                self._pending.append(_Pending(file, number, source, row, self._invalid))
                self._invalid = []
                yield self._text(source, row)

    def _skip(self, location: str, reason: str) -> None:
        error = {"code": InvalidField.code, "message": reason}
        self._invalid.append({"place": location, "error": error, "record": None})

    def _text(self, source: Source, row: Row) -> Text:
        text: dict[str, Any] = {"text": row[text_column(source, self._job.text_column)] or ""}
        if self._job.labels_column and (labels := row.get(self._job.labels_column)):
            text["labels"] = _names(labels)
        if self._job.adapter_column and (adapter_id := row.get(self._job.adapter_column)):
            text["adapter_id"] = adapter_id
        return text

    def take(self, result: BatchResult) -> None:
        """Add the result of the oldest pending record; write the chunk if it is full."""
        pending = self._pending.popleft()
        self._next = pending.file, pending.number + 1
        self._errors += pending.invalid
        if result.result:
            kept = (
                {"file": shown(pending.source.name), "record": pending.number + 1} if self._job.is_csv else pending.row
            )
            self._rows.append({**kept, **result_columns(result.result, self._job.schema_columns)})
            self._warnings.update(warning.code for warning in result.result.warnings)
        elif result.error:
            error = {"code": result.error.code, "message": result.error.message}
            location = location_of(pending.source, pending.number)
            self._errors.append({"place": location, "error": error, "record": pending.row})
        self._chars += sum(len(value) for value in pending.row.values() if isinstance(value, str))
        done, failed = self._counts()
        self._progress(done, failed, self._checkpoint.records)
        if len(self._rows) + len(self._errors) >= CHUNK_RECORDS or self._chars >= _CHUNK_CHARS:
            self.commit()

    def commit(self, *, complete: bool = False) -> None:
        """Write the chunk, then the checkpoint. complete: whether it is the last chunk."""
        if complete:
            self._errors += self._invalid
        if self._rows:
            self._writer.write(self._rows)
        if self._errors:
            self._error_lines.write(self._errors)
        done, failed = self._counts()
        self._rows, self._errors, self._chars = [], [], 0
        file, number = self._next
        self._checkpoint = replace(
            self._checkpoint,
            file=file,
            number=number,
            done=done,
            failed=failed,
            output=self._writer.position,
            errors=self._error_lines.position,
            complete=complete,
        )
        self._checkpoint.save(self._job.side_file("checkpoint"))

    def finish(self, resumed: int) -> Report:
        """Rename the output to its final name, and delete the checkpoint. resumed: see `Report`."""
        self._writer.finish()
        errors = self._job.side_file("errors.jsonl")
        if not self._checkpoint.failed:
            errors.unlink(missing_ok=True)
        self._job.side_file("checkpoint").unlink(missing_ok=True)
        last = self._checkpoint
        output, errors_file = str(self._job.output), str(errors) if last.failed else None
        warnings, left_out = dict(self._warnings), self._job.left_out()
        return Report(last.done, last.failed, resumed, output, errors_file, warnings, last.skipped, left_out)

    def _counts(self) -> tuple[int, int]:
        """Numbers of done and of failed records, including the current chunk."""
        failed = len(self._errors)
        return self._checkpoint.done + len(self._rows) + failed, self._checkpoint.failed + failed


def _names(labels: Any) -> Any:
    """Labels of a record. A string is split at commas; a list or map of Parquet or JSONL is kept."""
    return [name for name in map(str.strip, labels.split(",")) if name] if isinstance(labels, str) else labels
