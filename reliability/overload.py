"""A burst of clients at a server that has just started, which is answered, and overload: many times the measured
capacity, on a schedule that does not slow down with the server, which is refused early. It is sent twice: with a short
deadline, and by patient clients, whose deadline is the server's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmark.server import Server
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import Run, closed_loop, open_loop, percentile_ms
from gliner_bento.loadtest.machine import provenance
from reliability.measurement import Measurement, Target
from reliability.served import memory_watch, resident_mb, serving

CONCURRENCY = 64
"""Of the closed loop that measures the capacity: enough that batches are always full."""
CONNECTIONS = 800
"""Of the overload; the server's default limit is 2048."""
TIMEOUT_MS = 3000
"""Deadline of each request of the first overload, in its body."""
PATIENT_CONNECTIONS = 1900
"""Of the overload by patient clients, who wait longer."""
PATIENT_WAIT_S = 7.0
"""Limit on the median wait of patient clients, and on the time until it is normal again: `max_queue_wait_s` (5 s), and
the time of the requests that run."""
ACCEPTED, REFUSED, LATE = "200", "429", "504"
_BURST_S = 120.0
NORMAL_S = 0.3
"""A request that takes no longer than this, or than `_TIMES` as long as before the overload, is normal."""
_TIMES = 3
_PROBES = 20
_PROBE_PAUSE_S = 0.02
_GIVE_UP_S = 60.0
_TEXTS = 256


@dataclass(frozen=True, slots=True)
class Overloaded:
    """What one overload did.

    offered: requests/s. normal_s: longest normal latency. again_s: seconds from the last request to the first one of
    normal latency. memory_mb: of each service before, and the highest meanwhile.
    """

    offered: float
    seconds: float
    run: Run
    normal_s: float
    again_s: float | None
    memory_mb: dict[str, tuple[float, float]]

    def latencies(self, status: str) -> dict[str, Any]:
        """Number of answers with a status, and percentiles of their latencies."""
        latencies_s = sorted(reply.latency_s for reply in self.run.replies if reply.status == status)
        percentiles = {f"p{percent}_ms": percentile_ms(latencies_s, percent) for percent in (50, 95, 99, 100)}
        return {"count": len(latencies_s)} | percentiles

    @property
    def neither(self) -> int:
        """Requests that were neither accepted nor refused."""
        return self.run.unanswered + sum(reply.status not in (ACCEPTED, REFUSED, LATE) for reply in self.run.replies)

    @property
    def late_percent(self) -> float:
        """Share of the accepted requests that were not answered by their deadline."""
        late = sum(reply.status == LATE for reply in self.run.replies)
        return 100 * late / max(1, late + sum(reply.status == ACCEPTED for reply in self.run.replies))

    @property
    def without_retry_after(self) -> int:
        """Refusals that do not say when to come back."""
        return sum(reply.status == REFUSED and not reply.retry_after for reply in self.run.replies)

    @property
    def growth_mb(self) -> float:
        """Growth of the memory of all services."""
        return sum(highest - before for before, highest in self.memory_mb.values())


def overload(
    log: Path, *, clients: int, requests: int, factor: float, seconds: float, settings: Mapping[str, object]
) -> Measurement:
    """Send the burst, measure the capacity, send `factor` times as much for `seconds`, and wait until latencies are
    normal; then the same by patient clients."""
    at_start = provenance()
    with serving(log, settings) as server:
        of_burst = burst(server, clients, requests).summary()
        capacity = _capacity(server, min(10.0, seconds))
        offered = capacity["requests_per_s"] * factor
        result = _overloaded(server, offered, seconds, CONNECTIONS, TIMEOUT_MS)
        patient = _overloaded(server, offered, seconds, PATIENT_CONNECTIONS, None)
    accepted, refused = result.latencies(ACCEPTED), result.latencies(REFUSED)
    patient_s = patient.latencies(ACCEPTED)["p50_ms"]
    targets = [
        Target("burst: refused or not answered", "requests", requests - of_burst["statuses"].get(ACCEPTED, 0), 0),
        Target("accepted requests, p95", "s", accepted["p95_ms"] and accepted["p95_ms"] / 1000, TIMEOUT_MS / 1000),
        Target("accepted requests that missed their deadline", "%", result.late_percent, 1.0),
        Target("refusals, p95", "ms", refused["p95_ms"], 20.0),
        Target("neither accepted nor refused", "requests", result.neither, 0),
        Target("refusals without Retry-After", "requests", result.without_retry_after, 0),
        Target("memory growth, gateway and runner", "MB", result.growth_mb, 150.0),
        Target("until normal again", "s", result.again_s, 3.0),
        Target("patient clients: accepted requests, p50", "s", patient_s and patient_s / 1000, PATIENT_WAIT_S),
        Target("patient clients: neither accepted nor refused", "requests", patient.neither, 0),
        Target("patient clients: accepted requests that missed their deadline", "%", patient.late_percent, 1.0),
        Target("patient clients: until normal again", "s", patient.again_s, PATIENT_WAIT_S),
    ]
    facts = {
        "burst": of_burst,
        "capacity": capacity,
        "timeout_ms": TIMEOUT_MS,
        "offered_per_s": result.offered,
        **result.run.summary(),
        "accepted": accepted,
        "refused": refused,
        "memory_mb": result.memory_mb,
        "normal_latency_s": result.normal_s,
        "patient": {
            **patient.run.summary(),
            "accepted": patient.latencies(ACCEPTED),
            "refused": patient.latencies(REFUSED),
            "memory_mb": patient.memory_mb,
        },
        "settings": dict(settings),
    }
    command = f"make overload ARGS='--factor {factor:g} --seconds {seconds:g}'"
    notes = [_note_of_burst(of_burst, clients), *_notes(result, capacity), _note_of_patient(patient)]
    return Measurement("overload", command, targets, facts, at_start, notes)


def burst(server: Server, clients: int, requests: int) -> Run:
    """Short texts from so many clients, each of which waits for its answer before it sends the next one."""
    bodies, route = workload.encoded(workload.short(_TEXTS)), f"{server.url}/v1/extract"
    return closed_loop(route, bodies, concurrency=clients, seconds=_BURST_S, max_requests=requests)


def _capacity(server: Server, seconds: float) -> dict[str, Any]:
    """Summary of a closed loop, after one to warm up."""
    bodies = workload.encoded(workload.short(_TEXTS))
    for _ in ("warm-up", "capacity"):
        run = closed_loop(f"{server.url}/v1/extract", bodies, concurrency=CONCURRENCY, seconds=seconds)
    return run.summary()


def _overloaded(server: Server, offered: float, seconds: float, connections: int, timeout_ms: int | None) -> Overloaded:
    deadline = {} if timeout_ms is None else {"timeout_ms": timeout_ms}
    bodies, route = workload.encoded([body | deadline for body in workload.short(_TEXTS)]), f"{server.url}/v1/extract"
    with httpx.Client(timeout=60) as client:
        before_s = sorted(_probe(client, route, bodies[0])[1] for _ in range(_PROBES))
        normal_s = max(NORMAL_S, _TIMES * before_s[_PROBES // 2])
        before = resident_mb(server)
        with memory_watch(server) as samples:
            run = open_loop(route, bodies, rate=offered, seconds=seconds, max_connections=connections)
        probing_s = _until_normal(client, route, bodies[0], normal_s)
    again_s = None if probing_s is None else max(0.0, run.seconds - seconds) + probing_s
    memory = {name: (mb, max(sizes.get(name, 0.0) for _, sizes in samples)) for name, mb in before.items()}
    return Overloaded(offered, seconds, run, normal_s, again_s, memory)


def _note_of_burst(burst_summary: Mapping[str, Any], clients: int) -> str:
    answers = ", ".join(f"{count} x {status}" for status, count in burst_summary["statuses"].items())
    return (
        f"Burst: {burst_summary['requests']} texts of 6 to 30 words from {clients} clients as soon as the server is "
        f"ready: {answers} in {burst_summary['seconds']:.1f} s, p50 {burst_summary['p50_ms'] or 0:.0f} ms, p95 "
        f"{burst_summary['p95_ms'] or 0:.0f} ms."
    )


def _answers(run: Run) -> str:
    statuses = Counter(reply.status for reply in run.replies)
    return ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))


def _note_of_patient(result: Overloaded) -> str:
    accepted = result.latencies(ACCEPTED)
    return (
        f"Patient clients: the same for {result.seconds:.0f} s with the server's deadline: {_answers(result.run)}; "
        f"accepted p50 {accepted['p50_ms'] or 0:.0f} ms, p95 {accepted['p95_ms'] or 0:.0f} ms (the first seconds are "
        f"taken for a burst); refusals p95 {result.latencies(REFUSED)['p95_ms'] or 0:.1f} ms."
    )


def _notes(result: Overloaded, capacity: Mapping[str, Any]) -> list[str]:
    accepted, refused = result.latencies(ACCEPTED), result.latencies(REFUSED)
    return [
        f"Overload: capacity {capacity['requests_per_s']:.0f} requests/s (texts of 6 to 30 words, concurrency "
        f"{CONCURRENCY}); offered {result.offered:.0f}/s for {result.seconds:.0f} s with a deadline of "
        f"{TIMEOUT_MS / 1000:g} s: {_answers(result.run)}; answered "
        f"{accepted['count'] / result.run.seconds:.0f}/s, p50 {accepted['p50_ms'] or 0:.0f} ms; refusals p50 "
        f"{refused['p50_ms'] or 0:.1f} ms.",
        f"Over {result.run.connections} connections, of at most {CONNECTIONS} at a time. Latencies count from when a "
        f"request was due; the generator itself was late by up to {result.run.lag_s * 1000:.0f} ms, and took "
        f"{result.run.generator_s / result.run.seconds * 100:.0f} % of a core. Normal: one request in "
        f"{result.normal_s * 1000:.0f} ms.",
    ]


def _until_normal(client: httpx.Client, route: str, body: bytes, normal_s: float) -> float | None:
    """Seconds until a request is answered in `normal_s`; None after a minute."""
    start_s = time.monotonic()
    while (sent_s := time.monotonic()) - start_s < _GIVE_UP_S:
        status, took_s = _probe(client, route, body)
        if status == httpx.codes.OK and took_s <= normal_s:
            return sent_s + took_s - start_s
        time.sleep(_PROBE_PAUSE_S)
    return None


def _probe(client: httpx.Client, route: str, body: bytes) -> tuple[int, float]:
    start_s = time.monotonic()
    response = client.post(route, content=body, headers={"Content-Type": "application/json"})
    return response.status_code, time.monotonic() - start_s
