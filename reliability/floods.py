"""Floods: short texts with known answers beside floods of the same tenant, over a long time.

One flood is `gliner-bento bulk`, job after job. The other one is 64 connections that send long texts, give up after two
seconds and repeat immediately. They take turns; short texts are sent all the time, one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmark import generated
from benchmark.bench import log_progress
from benchmark.server import Server
from benchmark.table import table
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import percentile_ms, schedule
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT
from reliability.measurement import Measurement, Target
from reliability.served import memory_watch, serving
from reliability.soak import memory_slope
from reliability.soak_requests import SoakRequest, predictions, same

RATE = 4.0
CONNECTIONS = 64
IMPATIENCE_S = 2.0
LIMIT = 3.0
_TEXTS = 64
_RECORDS = 20_000
_RECORD_WORDS = 120
_TURN_S = 60.0
_WARM_UP_SHARE = 0.2
_JSON = {"Content-Type": "application/json"}


@dataclass(slots=True)
class Shorts:
    """Short texts at `RATE`, and what became of them. expected: the answers of the idle server."""

    url: str
    session: aiohttp.ClientSession
    requests: list[SoakRequest]
    expected: list[Any] = field(default_factory=list)

    async def answers(self) -> None:
        """Ask for each text once, one after another."""
        for request in self.requests:
            status, content = await self._post(request)
            assert status == 200, content
            self.expected.append(predictions(request, content))

    async def send(self, seconds: float, counts: Counter[str], latencies_s: list[float]) -> None:
        """Send for `seconds`, whatever is answered, and wait for all answers."""
        start_s, sent = time.monotonic(), []
        for number, due_s in enumerate(schedule(RATE, seconds)):
            await asyncio.sleep(max(0.0, start_s + due_s - time.monotonic()))
            sent.append(asyncio.ensure_future(self._one(number % len(self.requests), counts, latencies_s)))
        await asyncio.gather(*sent)

    async def _one(self, number: int, counts: Counter[str], latencies_s: list[float]) -> None:
        start_s = time.monotonic()
        try:
            status, content = await self._post(self.requests[number])
        except (aiohttp.ClientError, asyncio.TimeoutError):
            counts["lost"] += 1
            return
        latencies_s.append(time.monotonic() - start_s)
        if status != 200:
            counts[f"lost: {status}"] += 1
        elif same(predictions(self.requests[number], content), self.expected[number]):
            counts["right"] += 1
        else:
            counts["wrong"] += 1

    async def _post(self, request: SoakRequest) -> tuple[int, bytes]:
        async with self.session.post(self.url + request.path, data=request.payload, headers=_JSON) as response:
            return response.status, await response.read()


async def _impatient(url: str, outcomes: Counter[str]) -> None:
    """Connections that send long texts, one after another, until this is cancelled."""
    bodies = workload.encoded(workload.long(256))

    async def send(session: aiohttp.ClientSession, number: int) -> None:
        while True:
            number += CONNECTIONS
            try:
                async with session.post(f"{url}/v1/extract", data=bodies[number % 256], headers=_JSON) as answer:
                    await answer.read()
                    outcomes[str(answer.status)] += 1
            except (aiohttp.ClientError, asyncio.TimeoutError) as error:
                outcomes[type(error).__name__] += 1

    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=IMPATIENCE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await asyncio.gather(*(send(session, number) for number in range(CONNECTIONS)))


async def _bulk(url: str, folder: Path, outcomes: Counter[str]) -> None:
    """Jobs, one after another, until this is cancelled."""
    source = folder / "records.jsonl"
    if not source.exists():
        texts = (generated.document(_RECORD_WORDS, seed)["text"] for seed in range(_RECORDS))
        source.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts), encoding="utf-8")
    command = [sys.executable, "-m", "gliner_bento.cli", "bulk", str(source), "-o", str(folder / "out.jsonl")]
    command += ["--overwrite", "--quiet", "--url", url, "--labels", ",".join(workload.LABEL_SETS[0])]
    while True:
        job = await asyncio.create_subprocess_exec(*command, cwd=PROJECT_ROOT, stderr=subprocess.STDOUT)
        try:
            outcomes[f"exit code {await job.wait()}"] += 1
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                job.terminate()
            await job.wait()
            outcomes["ended by the measurement"] += 1
            raise


def floods(log: Path, *, minutes: float, settings: Mapping[str, object]) -> Measurement:
    """Short texts alone for a tenth of `minutes`, at most two; then beside each flood for a minute, in turn."""
    at_start = provenance()
    with tempfile.TemporaryDirectory(prefix="floods-") as scratch, serving(log, settings) as server:
        facts, samples = asyncio.run(_measured(server, Path(scratch), minutes * 60))
    slope = memory_slope(samples, minutes * 60 * _WARM_UP_SHARE)
    alone, beside = facts["alone"], facts["beside"]
    targets = [
        *(
            Target(f"p95 of short texts beside {name}", "x alone", _ratio(one["p95_ms"], alone["p95_ms"]), LIMIT)
            for name, one in beside.items()
        ),
        Target("lost", "requests", sum(_count(one, "lost") for one in beside.values()), 0),
        Target("wrong", "requests", sum(_count(one, "wrong") for one in beside.values()), 0),
        Target("memory slope after warm-up", "MB/min", slope, 1.0),
    ]
    rows = [
        [name, one["p50_ms"], one["p95_ms"], str(one["short"]), str(one.get("flood", ""))]
        for name, one in {"alone": alone, **beside}.items()
    ]
    notes = [table(["short texts", "p50 ms", "p95 ms", "answers", "the flood's"], rows)]
    facts |= {
        "minutes": minutes,
        "rate_per_s": RATE,
        "settings": {name: str(value) for name, value in settings.items()},
    }
    facts["memory_mb"] = [[round(at_s), {k: round(mb, 1) for k, mb in sizes.items()}] for at_s, sizes in samples[::10]]
    return Measurement("floods", f"python -m reliability floods --minutes {minutes:g}", targets, facts, at_start, notes)


async def _measured(
    server: Server, folder: Path, seconds: float
) -> tuple[dict[str, Any], list[tuple[float, dict[str, float]]]]:
    timeout, connector = aiohttp.ClientTimeout(total=40), aiohttp.TCPConnector(limit=0)
    requests = [SoakRequest("short", "/v1/extract", body) for body in workload.short(_TEXTS)]
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        shorts = Shorts(server.url, session, requests)
        await shorts.answers()
        counts, latencies_s = Counter[str](), list[float]()
        await shorts.send(min(120.0, seconds / 10), counts, latencies_s)
        alone = _summary(counts, latencies_s)
        outcomes = {"bulk": Counter[str](), "impatient connections": Counter[str]()}
        flood: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "bulk": lambda: _bulk(server.url, folder, outcomes["bulk"]),
            "impatient connections": lambda: _impatient(server.url, outcomes["impatient connections"]),
        }
        found = {name: (Counter[str](), list[float]()) for name in flood}
        until_s, turn_s = time.monotonic() + seconds, min(_TURN_S, seconds / 4)
        with memory_watch(server) as samples:
            while time.monotonic() < until_s:
                for name, start in flood.items():
                    log_progress(f"beside {name}, {until_s - time.monotonic():.0f} s left")
                    running = asyncio.ensure_future(start())
                    await asyncio.sleep(turn_s / 20)
                    await shorts.send(turn_s, *found[name])
                    assert not running.done(), running.result()
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
    beside = {name: _summary(*found[name]) | {"flood": dict(outcomes[name])} for name in flood}
    return {"alone": alone, "beside": beside}, samples


def _summary(counts: Counter[str], latencies_s: list[float]) -> dict[str, Any]:
    in_order = sorted(latencies_s)
    return {"short": dict(counts), "p50_ms": percentile_ms(in_order, 50), "p95_ms": percentile_ms(in_order, 95)}


def _count(one: Mapping[str, Any], outcome: str) -> int:
    return sum(count for name, count in one["short"].items() if name.startswith(outcome))


def _ratio(beside_ms: float | None, alone_ms: float | None) -> float | None:
    return beside_ms / alone_ms if beside_ms and alone_ms else None
