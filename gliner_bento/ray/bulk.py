"""Bulk extraction with Ray Data: rows of Parquet or JSONL files in, the same rows with their entities out.

The input is divided into blocks of rows. Each block becomes one output file, written under another name and then
renamed. A job that is started again skips the blocks whose files exist. Each actor has an engine with its scheduler,
and submits a whole block at a time; the scheduler forms batches of it."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
import ray.data
from ray.exceptions import RayError

from gliner_bento.errors import GLiNERBentoError, NotReady, StartupError
from gliner_bento.files.bulk.checkpoint import differing_fields
from gliner_bento.files.records.columns import result_columns
from gliner_bento.files.records.sources import left_out
from gliner_bento.ray.cluster import connect, reason
from gliner_bento.ray.tables import RowBlock, blocks_of, read_block, write_block
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import Extraction, ExtractionItem

JOB_FILE = "job.json"
"""Name of a file in the output folder: the job that made the files there."""


@dataclass(frozen=True, slots=True)
class RayBulkJob:
    """A job. inputs: files, or folders of them. output: a folder, which all nodes see under this path.

    labels, relations: names with their descriptions. text_column: the input's column with the texts; the output has all
    columns of the input. block_rows: rows per output file. actors: maximum number of actors, which each hold the model.
    cpus, gpus: per actor."""

    inputs: Sequence[str]
    output: str
    labels: Mapping[str, str]
    relations: Mapping[str, str] = field(default_factory=dict)
    threshold: float = 0.5
    adapter_id: str | None = None
    text_column: str = "text"
    block_rows: int = 1024
    actors: int = 1
    cpus: float = 1
    gpus: float = 0

    def identity(self) -> dict[str, Any]:
        """The fields that determine the content of the output files, together with the model."""
        irrelevant = {"output", "actors", "cpus", "gpus"}
        return {name: value for name, value in asdict(self).items() if name not in irrelevant}


@dataclass(frozen=True, slots=True)
class RayBulkReport:
    """The result of a run. skipped: number of blocks of earlier runs. errors: number of failed rows by code.

    left_out: numbers of paths in the input folders that are not read, as `sources.left_out`."""

    blocks: int
    skipped: int
    rows: int
    errors: Mapping[str, int]
    left_out: Mapping[str, int]


def run(
    job: RayBulkJob, settings: Settings, on_block: Callable[[int, int], None] = lambda done, all_blocks: None
) -> RayBulkReport:
    """Run the job, or continue it after an earlier run. Connects to a cluster unless the caller has done so.

    on_block: called with the numbers of written blocks and of all blocks. Raises `StartupError` for files that cannot
    be read, for an output folder of another job, and if actors do not start or die too often."""
    output = Path(job.output).resolve()
    not_read: list[str] = []
    blocks = blocks_of(job.inputs, job.block_rows, job.text_column, not_read.append)
    _claim(output, {**job.identity(), "model": settings.model})
    missing = [block for block in blocks if not (output / block.output).exists()]
    done, errors = len(blocks) - len(missing), Counter[str]()
    if missing:
        if not ray.is_initialized():
            connect()
        dataset = ray.data.from_items([asdict(block) for block in missing], override_num_blocks=len(missing))
        written = dataset.map_batches(
            Extractor,
            fn_constructor_args=[job, settings, str(output)],
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(job.actors, len(missing))),
            batch_size=1,
            num_cpus=job.cpus,
            num_gpus=job.gpus,
        )
        try:
            for row in written.iter_rows():
                done += 1
                errors.update(json.loads(row["errors"]))
                on_block(done, len(blocks))
        except RayError as error:
            raise StartupError(f"the job ended after {done} of {len(blocks)} blocks: {reason(error)}") from None
    rows = sum(block.rows for block in missing)
    return RayBulkReport(len(blocks), len(blocks) - len(missing), rows, errors, left_out(not_read))


def _claim(output: Path, identity: dict[str, Any]) -> None:
    """Make the output folder, or check that it belongs to this job; delete unfinished files in it."""
    output.mkdir(parents=True, exist_ok=True)
    file = output / JOB_FILE
    if not file.exists():
        if any(output.iterdir()):
            raise StartupError(f"{output}: the folder is not empty, and not that of a bulk job; choose another one")
        file.write_text(json.dumps(identity, indent=1))
    if differing := differing_fields(identity, json.loads(file.read_text())):
        raise StartupError(f"{output}: the folder has a job with other {', '.join(differing)}; choose another one")
    for unfinished in output.glob(".*.unfinished"):
        unfinished.unlink()


class Extractor:
    """An actor of the job: engine, scheduler and adapters of one replica."""

    def __init__(self, job: RayBulkJob, settings: Settings, output: str) -> None:
        self._job = job
        self._output = Path(output)
        capacity = max(settings.queue_capacity, job.block_rows)
        for_actor = settings.model_copy(update={"num_instances": 1, "queue_capacity": capacity})
        self._replica = LocalReplica.load(for_actor, cores=max(1, int(job.cpus)))

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
        """Write the output file of each block in the batch; returns each block's number of errors by code, as JSON."""
        numbers = range(len(batch["file"]))  # one per block; `batch` has the values of each field of `RowBlock`
        blocks = (RowBlock(**{name: _plain(values[number]) for name, values in batch.items()}) for number in numbers)
        return {"errors": [json.dumps(self._run(block)) for block in blocks]}

    def _run(self, block: RowBlock) -> Counter[str]:
        rows, texts = read_block(block, self._job.text_column)
        outcomes = list(self._extract(texts))
        unfinished = self._output / f".{block.output}.{uuid.uuid4().hex}.unfinished"
        write_block(block, rows, [_columns(outcome) for outcome in outcomes], unfinished, self._output / block.output)
        return Counter(outcome.code for outcome in outcomes if not isinstance(outcome, Extraction))

    def _extract(self, texts: Sequence[Any]) -> Iterator[Extraction | GLiNERBentoError]:
        """The outcomes, in order. A null counts as an empty text. Raises `NotReady`; Ray then starts another actor."""
        job = self._job
        options: dict[str, Any] = {"labels": job.labels, "relations": job.relations, "adapter_id": job.adapter_id}
        options |= {"threshold": job.threshold, "relation_threshold": job.threshold}
        items = [ExtractionItem("" if text is None else str(text), **options) for text in texts]
        for future in self._replica.scheduler.submit_many(items, request_id="bulk"):
            try:
                yield future.result()
            except NotReady:
                raise
            except GLiNERBentoError as error:
                yield error


def _columns(outcome: Extraction | GLiNERBentoError) -> dict[str, Any]:
    """The columns that are added to a row."""
    extraction = outcome if isinstance(outcome, Extraction) else Extraction(())
    return {
        **result_columns(extraction),
        "error": None if isinstance(outcome, Extraction) else f"{outcome.code}: {outcome.message}",
    }


def _plain(value: Any) -> Any:
    """A value of Ray's batches, which are numpy arrays, as a Python value."""
    return value.item() if hasattr(value, "item") else value
