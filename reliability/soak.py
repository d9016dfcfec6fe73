"""A soak: mixed requests with known answers at a share of the capacity, with faults among them, over a long time."""

from __future__ import annotations

import asyncio
import io
import random
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import aiohttp

from benchmark import job
from benchmark.bench import log_progress
from benchmark.server import Server
from gliner_bento.loadtest.load import percentile_ms, schedule
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT
from reliability.measurement import Measurement, Target
from reliability.served import memory_watch, processes, serving
from reliability.soak_requests import ADAPTERS, SoakRequest, predictions, same, soak_requests

SHARE = 0.8
CONCURRENCY = 32
PATIENCE_S = 90.0
KILL_AT = 0.9
RECOVERY_S = 120.0
"""After the runner was killed, 503, or 504 at the deadline, is the right answer for so long, at most."""
WARM_UP_SHARE = 0.2
_FAULT_SHARE = 0.08
_CHURN_S = 10.0
_BIN_S = 30.0
_KEPT = 20
_REFUSED, _ABORTED, _LATE, _WITHOUT_RUNNER = 429, 499, 504, (503, 504)
_JSON = {"Content-Type": "application/json"}
_BAD = (b'{"text": 5, "labels": ["a"]}', b'{"text": "a"', b"[]", b'{"text": "a", "labels": ["a"], "threshold": 7}')


@dataclass(slots=True)
class Outcomes:
    """What became of the requests. latencies: (seconds since the start, seconds) of right answers."""

    counts: Counter[str] = field(default_factory=Counter)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    def keep(self, outcome: str, example: str = "") -> None:
        """Count one request, and keep the first examples of those that went wrong."""
        self.counts[outcome] += 1
        if example and len(self.examples) < _KEPT:
            self.examples.append(f"{outcome}: {example}"[:500])


@dataclass(slots=True)
class Soak:
    """One run against a server. expected: of each request. archive: of an adapter that is put and deleted."""

    server: Server
    session: aiohttp.ClientSession
    requests: Sequence[SoakRequest]
    expected: Sequence[Any]
    archive: bytes
    seconds: float
    kill: bool
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    outcomes: Outcomes = field(default_factory=Outcomes)
    started_s: float = 0.0
    killed_s: float | None = None

    async def run(self, rate: float) -> None:
        """Send `rate` requests/s for `seconds`, whatever is answered, and wait for all answers."""
        self.started_s = time.monotonic()
        others = [asyncio.ensure_future(self._churn_adapters())]
        if self.kill:
            others.append(asyncio.ensure_future(self._kill_runner()))
        sent: set[asyncio.Task[None]] = set()
        for due_s in schedule(rate, self.seconds):
            await asyncio.sleep(max(0.0, self.started_s + due_s - time.monotonic()))
            one = asyncio.ensure_future(self._fault() if self.rng.random() < _FAULT_SHARE else self._valid())
            sent.add(one)
            one.add_done_callback(sent.discard)
        await asyncio.gather(*sent)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _valid(self) -> None:
        number = self.rng.randrange(len(self.requests))
        request, start_s = self.requests[number], time.monotonic()
        try:
            status, content = await self._post(request.path, request.payload)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            self.outcomes.keep("lost", f"{request.kind} {error!r}")
            return
        if status == 200:
            try:
                right = same(predictions(request, content), self.expected[number])
            except (ValueError, KeyError, TypeError):
                right = self._recovering() and b'"error"' in content  # the last line of a stream, an item of a batch
            self.outcomes.keep("right" if right else "wrong", "" if right else f"{request.body} {content[:300]!r}")
            self.outcomes.latencies.append((start_s - self.started_s, time.monotonic() - start_s))
        elif status == _REFUSED:
            self.outcomes.keep("refused")
        elif status in _WITHOUT_RUNNER and self._recovering():
            self.outcomes.keep(f"{status} after the kill")
        else:
            self.outcomes.keep("late" if status == _LATE else "lost", f"{request.kind} {status} {content[:200]!r}")

    async def _fault(self) -> None:
        """A client that leaves, a request that is aborted, or one that is invalid."""
        request = self.rng.choice(self.requests)
        kind = self.rng.choice([self._leave, self._abort, self._invalid])
        try:
            await kind(request)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            self.outcomes.keep("lost", f"{kind.__name__} {error!r}")

    async def _leave(self, request: SoakRequest) -> None:
        call = asyncio.ensure_future(self._post(request.path, request.payload))
        await asyncio.wait([call], timeout=self.rng.random() * 0.1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        self.outcomes.keep("left")

    async def _abort(self, request: SoakRequest) -> None:
        if request.kind in ("gliner", "batch", "stream"):
            return await self._leave(request)
        own_id = f"soak-{self.rng.getrandbits(64):x}"
        payload = SoakRequest(request.kind, request.path, request.body | {"request_id": own_id}).payload
        call = asyncio.ensure_future(self._post(request.path, payload))
        await asyncio.sleep(self.rng.random() * 0.1)
        aborted, _ = await self._post(f"/v1/requests/{own_id}/abort", b"{}")
        status, content = await call
        expected = status in (200, _ABORTED, _REFUSED, _LATE) and aborted == 200
        if expected or (self._recovering() and {status, aborted} & set(_WITHOUT_RUNNER)):
            self.outcomes.keep("aborted, or answered before")
        else:
            self.outcomes.keep("lost", f"abort {status} {aborted} {content[:200]!r}")

    async def _invalid(self, request: SoakRequest) -> None:
        status, content = await self._post(request.path, self.rng.choice(_BAD))
        right = 400 <= status < 500
        self.outcomes.keep("invalid, refused" if right else "wrong", "" if right else f"invalid {status} {content!r}")

    async def _churn_adapters(self) -> None:
        """Put an adapter, use it, delete it, again and again."""
        for number in range(1_000_000):
            path = f"{self.server.url}/v1/adapters/churn-{number}"
            try:
                async with self.session.put(path, data=self.archive) as put:
                    statuses = [put.status]
                body = self.requests[0].body | {"adapter_id": f"churn-{number}"}
                used, _ = await self._post("/v1/extract", SoakRequest("adapter", "/v1/extract", body).payload)
                async with self.session.delete(path) as deleted:
                    statuses += [used, deleted.status]
            except (aiohttp.ClientError, asyncio.TimeoutError) as error:
                self.outcomes.keep("adapters put, used and deleted: failed", repr(error))
            else:
                fine = all(status < 300 or status == _REFUSED for status in statuses) or self._recovering()
                fault = "" if fine else f"adapter churn-{number}: {statuses}"
                self.outcomes.keep(f"adapters put, used and deleted{'' if fine else ': failed'}", fault)
            await asyncio.sleep(min(_CHURN_S, self.seconds / 5))

    async def _kill_runner(self) -> None:
        await asyncio.sleep(self.seconds * KILL_AT)
        self.killed_s = time.monotonic() - self.started_s
        processes(self.server)["runner"].kill()

    def _recovering(self) -> bool:
        return self.killed_s is not None and time.monotonic() - self.started_s - self.killed_s < RECOVERY_S

    async def _post(self, path: str, payload: bytes) -> tuple[int, bytes]:
        async with self.session.post(self.server.url + path, data=payload, headers=_JSON) as response:
            return response.status, await response.read()


def soak(
    log: Path,
    *,
    minutes: float,
    kill: bool,
    rate: float | None,
    different: int,
    settings: Mapping[str, object],
) -> Measurement:
    """Measure for `minutes`.

    kill: SIGKILL the runner near the end. rate: requests/s; None: `SHARE` of the capacity. different: number of
    different requests.
    """
    at_start, given_rate = provenance(), rate
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        archives = _adapter_archives(Path(scratch))
        given = {"enable_lora": True, "disk_cache_dir": f"{scratch}/store", "dtype": "float32", **settings}
        with serving(log, given) as server:
            run, samples, rate = asyncio.run(_soaked(server, archives, minutes * 60, kill, rate, different))
    samples = [sample for sample in samples if run.killed_s is None or sample[0] < run.killed_s]
    slope = memory_slope(samples, minutes * 60 * WARM_UP_SHARE)
    bins = _by_time(run.outcomes.latencies)
    counts = run.outcomes.counts
    targets = [
        Target("lost", "requests", counts["lost"], 0),
        Target("wrong", "requests", counts["wrong"], 0),
        Target("late: 504 at the deadline", "requests", counts["late"], 0),
        Target(
            "adapters that could not be put, used and deleted", "", counts["adapters put, used and deleted: failed"], 0
        ),
        Target("memory slope after warm-up", "MB/min", slope, 1.0),
    ]
    latencies_s = sorted(latency for _, latency in run.outcomes.latencies)
    facts = {
        "minutes": minutes,
        "rate_per_s": rate,
        "outcomes": dict(sorted(counts.items())),
        "examples": run.outcomes.examples,
        "p50_ms": percentile_ms(latencies_s, 50),
        "p95_ms": percentile_ms(latencies_s, 95),
        "p95_ms_by_time": bins,
        "killed_after_s": run.killed_s,
        "memory_mb": [
            [round(at_s), {name: round(size, 1) for name, size in sizes.items()}] for at_s, sizes in samples[::10]
        ],
        "settings": {name: str(value) for name, value in settings.items()},
    }
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    killed = f"the runner was killed after {run.killed_s:.0f} s" if run.killed_s else "nothing was killed"
    load = f"{rate:.1f}/s" + ("" if given_rate else f", {SHARE:.0%} of the capacity")
    notes = [
        f"{sum(counts.values())} requests in {minutes:g} minutes at {load}: {outcomes}. "
        f"p50 {facts['p50_ms'] or 0:.0f} ms, p95 {facts['p95_ms'] or 0:.0f} ms; {killed}.",
        "float32. Each answer is compared with the one that the idle server gave. Memory: gateway and runner, the "
        f"lowest of each {_BIN_S:.0f} s, after the first {WARM_UP_SHARE:.0%} of the time and until the kill.",
    ]
    command = f"make soak MINUTES={minutes:g}" + ("" if kill else " ARGS=--no-kill")
    return Measurement("soak", command, targets, facts, at_start, notes)


async def _soaked(
    server: Server, archives: Mapping[str, bytes], seconds: float, kill: bool, rate: float | None, different: int
) -> tuple[Soak, list[tuple[float, dict[str, float]]], float]:
    """The run, samples of the memory, and the rate in requests/s."""
    requests = soak_requests(different)
    timeout, connector = aiohttp.ClientTimeout(total=PATIENCE_S), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        archive = next(iter(archives.values()))
        for name, content in archives.items():
            async with session.put(f"{server.url}/v1/adapters/{name}", data=content) as put:
                put.raise_for_status()
        run = Soak(server, session, requests, [], archive, seconds, kill)
        log_progress(f"{len(requests)} expected answers, one at a time")
        contents = [await run._post(request.path, request.payload) for request in requests]
        run.expected = [predictions(*pair) for pair in zip(requests, (content for _, content in contents), strict=True)]
        rate = rate or SHARE * await _capacity(run, min(20.0, seconds / 2))
        log_progress(f"{rate:.1f} requests/s for {seconds:.0f} s")
        with memory_watch(server) as samples:
            await run.run(rate)
    return run, samples, rate


async def _capacity(run: Soak, seconds: float) -> float:
    """Requests/s of a closed loop, in the second half of the time."""
    log_progress("capacity")
    ends: list[float] = []
    until_s = time.monotonic() + seconds

    async def client() -> None:
        while time.monotonic() < until_s:
            request = run.rng.choice(run.requests)
            status, _ = await run._post(request.path, request.payload)
            if status == 200:
                ends.append(time.monotonic())

    await asyncio.gather(*(client() for _ in range(CONCURRENCY)))
    return sum(until_s - seconds / 2 <= end_s <= until_s for end_s in ends) / (seconds / 2)


def memory_slope(samples: Sequence[tuple[float, Mapping[str, float]]], from_s: float) -> float | None:
    """Least-squares line through the memory of all services from `from_s` on: MB per minute.

    Of each `_BIN_S` the lowest memory counts: what stays, without that of the requests of the moment.
    """
    lowest: dict[int, tuple[float, float]] = {}
    for at_s, sizes in samples:
        if at_s >= from_s and len(sizes) > 1:
            point, number = (at_s / 60, sum(sizes.values())), int(at_s // _BIN_S)
            lowest[number] = min(lowest.get(number, point), point, key=itemgetter(1))
    points = list(lowest.values())
    if len(points) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def _by_time(latencies: Sequence[tuple[float, float]]) -> list[tuple[float, float | None]]:
    """p95 in ms of each `_BIN_S`, with the seconds at which it begins."""
    bins: dict[int, list[float]] = {}
    for at_s, latency_s in latencies:
        bins.setdefault(int(at_s // _BIN_S), []).append(latency_s)
    return [(number * _BIN_S, percentile_ms(sorted(values), 95)) for number, values in sorted(bins.items())]


def _adapter_archives(folder: Path) -> dict[str, bytes]:
    """Adapters of the bundled model with random weights, as archives, by id."""
    model = str(PROJECT_ROOT / "models" / "demo")
    job.run("adapters", folder=str(folder), what="make", model=model, counts={"attention": len(ADAPTERS)})
    archives = {}
    for name, source in zip(ADAPTERS, sorted((folder / "root").iterdir()), strict=True):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for file in source.iterdir():
                archive.write(file, file.name)
        archives[name] = content.getvalue()
    return archives
