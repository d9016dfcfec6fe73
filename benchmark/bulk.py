"""The section `bulk`: throughput of `gliner-bento bulk` against the server's own, with the bundled model; two minutes.

Finds the number of concurrent requests, of 16 texts each, at which the server answers most texts. Then, in turns: a
closed loop of so many requests, and a bulk job over the same texts.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark.bench import DEMO, Bench, log_progress
from benchmark.job import NotMeasured
from benchmark.over_http import BATCH
from benchmark.rows import Row
from gliner_bento.client import AsyncClient
from gliner_bento.client.many import MAX_TEXTS
from gliner_bento.files.bulk import job as bulk_job
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import closed_loop

_ROUNDS = 4
_CONCURRENCIES = (2, 4, 8, 16, 32)
_TARGET = 0.95
_DISTINCT_TEXTS = 2048
_LABELS = list(workload.LABEL_SETS[0])
_TIMEOUT_S = 600.0


def bulk(bench: Bench, section: str) -> list[Row]:
    """Medians of texts/s over the rounds."""
    texts = [body["text"] for body in workload.mixed(_DISTINCT_TEXTS)]
    groups = [texts[start : start + MAX_TEXTS] for start in range(0, len(texts), MAX_TEXTS)]
    bodies = workload.encoded([{"texts": group, "labels": _LABELS} for group in groups])
    seconds = bench.plan.seconds
    server_s, bulk_s = list[float](), list[float]()
    with bench.ours(DEMO) as server:
        _server_throughput(server.url, bodies, 2, min(seconds, 3.0))  # warms up
        rates = {number: _server_throughput(server.url, bodies, number, min(seconds, 3.0)) for number in _CONCURRENCIES}
        best = max(rates, key=lambda number: rates[number])
        source, records = bench.folder / "texts.jsonl", round(rates[best] * seconds)
        with source.open("w", encoding="utf-8") as file:
            for number in range(records):
                file.write(json.dumps({"id": number, "text": texts[number % len(texts)]}) + "\n")
        for number in range(_ROUNDS):
            server_s.append(_server_throughput(server.url, bodies, best, seconds))
            bulk_s.append(_bulk_throughput(server.url, source, bench.folder / f"out-{number}.jsonl", records))
            log_progress(f"  server {server_s[-1]:.1f}, bulk {bulk_s[-1]:.1f} texts/s")
    bench.extra["bulk"] = {"texts_per_s_by_concurrency": rates, "server_texts_per_s": server_s, "texts_per_s": bulk_s}
    ours, theirs = statistics.median(bulk_s), statistics.median(server_s)
    note = f"{records} records; concurrency {best}; medians of {_ROUNDS} rounds"
    return [Row(section, "a bulk job, bundled model", "texts/s", ours, theirs, "load generator", _TARGET, note=note)]


def _server_throughput(url: str, bodies: Sequence[bytes], concurrency: int, seconds: float) -> float:
    """Texts per second that have a result; refused ones have none."""
    run = closed_loop(url + BATCH, bodies, concurrency=concurrency, seconds=seconds)
    answers = [json.loads(reply.content) for reply in run.replies if reply.status == "200"]
    texts = sum(one["result"] is not None for answer in answers for one in answer["results"])
    if not texts:
        raise NotMeasured(f"the server answered {run.replies[0].status if run.replies else 'nothing'}")
    return texts / run.seconds


def _bulk_throughput(url: str, source: Path, output: Path, records: int) -> float:
    job = bulk_job.Job([str(source)], output, _LABELS)

    async def run() -> bulk_job.Report:
        async with AsyncClient(url, timeout_s=_TIMEOUT_S) as client:
            return await bulk_job.run(job, [client], lambda *_: None, overwrite=True)

    start_s = time.monotonic()
    report = asyncio.run(run())
    seconds = time.monotonic() - start_s
    if report.failed or report.records != records:
        raise NotMeasured(f"bulk: {report.failed} of {report.records} records failed")
    return records / seconds
