"""Throughput of `gliner-bento bulk` beside the server's own: `python -m benchmark --bulk`, about two minutes.

Starts a server with the bundled model, and looks for the number of concurrent requests, of 16 texts each, at which it
answers most texts. Then in turns: a closed loop of so many requests, and a bulk job over the same texts. Writes
bulk.json: texts per second of each turn, and the ratio of the medians.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark import results_file
from benchmark.server import started
from gliner_bento.client import AsyncClient
from gliner_bento.client.many import MAX_TEXTS
from gliner_bento.files.bulk import job as bulk
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import closed_loop
from gliner_bento.loadtest.machine import provenance

ROOT = Path(__file__).resolve().parents[1]
TURNS = 4
_CONCURRENCIES = (2, 4, 8, 16, 32)
TARGET = 0.95
_DISTINCT_TEXTS = 2048
_LABELS = list(workload.LABEL_SETS[0])
_TIMEOUT_S = 600.0


def compare(folder: Path, seconds: float) -> str:
    """Measure, and write bulk.json; the report. seconds: of each turn, about."""
    texts = [body["text"] for body in workload.mixed(_DISTINCT_TEXTS)]
    groups = [texts[start : start + MAX_TEXTS] for start in range(0, len(texts), MAX_TEXTS)]
    bodies = workload.encoded([{"texts": group, "labels": _LABELS} for group in groups])
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
    server_s, bulk_s = list[float](), list[float]()
    with started(command, cwd=ROOT, log=folder / "server.log") as server:
        _server_throughput(server.url, bodies, 2, min(seconds, 3.0))  # warms up
        rates = {number: _server_throughput(server.url, bodies, number, min(seconds, 3.0)) for number in _CONCURRENCIES}
        best = max(rates, key=lambda number: rates[number])
        records = _written(folder / "texts.jsonl", texts, round(rates[best] * seconds))
        for turn in range(TURNS):
            server_s.append(_server_throughput(server.url, bodies, best, seconds))
            bulk_s.append(_bulk_throughput(server.url, folder / "texts.jsonl", folder / f"out-{turn}.jsonl", records))
            sys.stderr.write(f"benchmark: server {server_s[-1]:.1f}, bulk {bulk_s[-1]:.1f} texts/s\n")
    ratio = statistics.median(bulk_s) / statistics.median(server_s)
    data: dict[str, Any] = {
        **provenance(),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "records": records,
        "concurrency": best,
        "texts_per_s_by_concurrency": rates,
        "server_texts_per_s": server_s,
        "bulk_texts_per_s": bulk_s,
        "ratio": ratio,
        "target": TARGET,
    }
    results_file.write(folder / "bulk.json", data)
    return render(data)


def render(data: dict[str, Any]) -> str:
    """A table of the turns, and whether the target is met."""
    rows = zip(data["server_texts_per_s"], data["bulk_texts_per_s"], strict=True)
    lines = ["| Turn | Server, texts/s | Bulk, texts/s |", "|---|---|---|"]
    lines += [f"| {turn} | {server:.1f} | {job:.1f} |" for turn, (server, job) in enumerate(rows, 1)]
    verdict = "met" if data["ratio"] >= data["target"] else "missed"
    lines += ["", f"Ratio of the medians: {data['ratio']:.3f}, target {data['target']}: {verdict}."]
    return "\n".join(lines) + "\n"


def _server_throughput(url: str, bodies: Sequence[bytes], concurrency: int, seconds: float) -> float:
    """Texts per second that have a result; refused ones have none."""
    run = closed_loop(f"{url}/v1/extract/batch", bodies, concurrency=concurrency, seconds=seconds)
    answers = [json.loads(reply.content) for reply in run.replies if reply.status == "200"]
    texts = sum(one["result"] is not None for answer in answers for one in answer["results"])
    if not texts:
        raise ValueError(f"the server answered {run.replies[0].status if run.replies else 'nothing'}")
    return texts / run.seconds


def _bulk_throughput(url: str, source: Path, output: Path, records: int) -> float:
    job = bulk.Job([str(source)], output, _LABELS)

    async def run() -> bulk.Report:
        async with AsyncClient(url, timeout_s=_TIMEOUT_S) as client:
            return await bulk.run(job, [client], lambda *_: None, overwrite=True)

    start_s = time.monotonic()
    report = asyncio.run(run())
    seconds = time.monotonic() - start_s
    if report.failed or report.records != records:
        raise ValueError(f"bulk: {report.failed} of {report.records} records failed")
    return records / seconds


def _written(path: Path, texts: Sequence[str], records: int) -> int:
    with path.open("w", encoding="utf-8") as file:
        for number in range(records):
            file.write(json.dumps({"id": number, "text": texts[number % len(texts)]}) + "\n")
    return records
