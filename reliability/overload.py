"""Overload: many times the measured capacity, on a schedule that does not slow down with the server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import Reply, closed_loop, open_loop, percentile_ms
from gliner_bento.loadtest.machine import provenance
from reliability.measurement import Measurement, Target
from reliability.served import memory_watch, resident_mb, serving

CONCURRENCY = 32
ACCEPTED, REFUSED = "200", "429"
NORMAL_S = 0.3
"""A request that takes no longer than this, or than `_TIMES` as long as before the overload, is normal."""
_TIMES = 3
_PROBES = 20
_PROBE_PAUSE_S = 0.02
_GIVE_UP_S = 60.0
_TEXTS = 256


def overload(log: Path, *, factor: float, seconds: float, settings: Mapping[str, object]) -> Measurement:
    """Measure the capacity, send `factor` times as much for `seconds`, and wait until latencies are normal."""
    at_start = provenance()
    bodies = workload.encoded(workload.short(_TEXTS))
    with serving(log, settings) as server, httpx.Client(timeout=60) as client:
        route = f"{server.url}/v1/extract"
        closed_loop(route, bodies, concurrency=CONCURRENCY, seconds=min(10.0, seconds))
        closed = closed_loop(route, bodies, concurrency=CONCURRENCY, seconds=min(10.0, seconds)).summary()
        rate = closed["requests_per_s"] * factor
        normal_s = max(
            NORMAL_S, _TIMES * sorted(_probe(client, route, bodies[0])[1] for _ in range(_PROBES))[_PROBES // 2]
        )
        before = resident_mb(server)
        with memory_watch(server) as samples:
            run = open_loop(route, bodies, rate=rate, seconds=seconds)
        normal_again_s = _until_normal(client, route, bodies[0], normal_s)
    last_due_s = min(seconds, run.seconds)
    growth = {name: max(sizes.get(name, 0.0) for _, sizes in samples) - size for name, size in before.items()}
    summary = {
        "capacity": closed,
        "offered_per_s": rate,
        **run.summary(),
        "refused": _latencies([reply for reply in run.replies if reply.status == REFUSED]),
        "accepted": _latencies([reply for reply in run.replies if reply.status == ACCEPTED]),
        "refusals_without_retry_after": sum(reply.status == REFUSED and not reply.retry_after for reply in run.replies),
        "memory_before_mb": before,
        "memory_growth_mb": growth,
        "drained_after_s": run.seconds - last_due_s,
        "normal_latency_s": normal_s,
    }
    again_s = None if normal_again_s is None else run.seconds - last_due_s + normal_again_s
    statuses = Counter(reply.status for reply in run.replies)
    others = sum(count for status, count in statuses.items() if status not in (ACCEPTED, REFUSED))
    targets = [
        Target("accepted requests, p95", "s", _seconds(summary["accepted"]["p95_ms"]), 2.0),
        Target("refusals, p95", "ms", summary["refused"]["p95_ms"], 20.0),
        Target("neither accepted nor refused", "requests", others + run.unanswered, 0),
        Target("refusals without Retry-After", "requests", summary["refusals_without_retry_after"], 0),
        Target("memory growth, gateway and runner", "MB", sum(growth.values()), 150.0),
        Target("until normal again", "s", again_s, 3.0),
    ]
    accepted, refused = summary["accepted"], summary["refused"]
    answers = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
    notes = [
        f"Capacity {closed['requests_per_s']:.0f} requests/s (texts of 6 to 30 words, {CONCURRENCY} concurrent "
        f"requests); offered {rate:.0f}/s for {seconds:.0f} s: {answers}; accepted "
        f"{accepted['count'] / run.seconds:.0f}/s, p50 {accepted['p50_ms'] or 0:.0f} ms; refusals p50 "
        f"{refused['p50_ms'] or 0:.1f} ms.",
        "Latencies count from when a request was due; the generator itself was late by up to "
        f"{run.lag_s * 1000:.0f} ms. Normal: one request in {normal_s * 1000:.0f} ms.",
    ]
    command = f"make overload ARGS='--factor {factor:g} --seconds {seconds:g}'"
    return Measurement("overload", command, targets, summary | {"settings": dict(settings)}, at_start, notes)


def _latencies(replies: Sequence[Reply]) -> dict[str, Any]:
    latencies_s = sorted(reply.latency_s for reply in replies)
    return {"count": len(replies)} | {
        f"p{percent}_ms": percentile_ms(latencies_s, percent) for percent in (50, 95, 99, 100)
    }


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


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
