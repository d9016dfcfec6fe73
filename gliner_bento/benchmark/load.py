"""The load generator: a closed loop of clients, each of which sends its next request when the last is answered."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Latencies are of answered requests; `wrong` counts answers whose offsets do not fit their text."""

    concurrency: int
    seconds: float
    requests: int
    requests_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    statuses: dict[str, int]
    wrong: int

    def as_data(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def closed_loop(url: str, bodies: Sequence[dict[str, Any]], *, concurrency: int, seconds: float) -> Measured:
    """Send `bodies` to `/v1/extract` of `url`, round and round, for `seconds`, `concurrency` at a time."""
    return asyncio.run(_closed_loop(url, bodies, concurrency, seconds))


async def _closed_loop(url: str, bodies: Sequence[dict[str, Any]], concurrency: int, seconds: float) -> Measured:
    statuses: Counter[str] = Counter()
    latencies_s: list[float] = []
    turns = itertools.cycle(bodies)
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits) as client:
        began = time.perf_counter()
        clients = (_client(client, turns, began + seconds, statuses, latencies_s) for _ in range(concurrency))
        wrong = sum(await asyncio.gather(*clients))
        took_s = time.perf_counter() - began
    latencies_s.sort()
    return Measured(
        concurrency=concurrency,
        seconds=took_s,
        requests=sum(statuses.values()),
        requests_per_s=len(latencies_s) / took_s,
        p50_ms=_percentile_ms(latencies_s, 50),
        p95_ms=_percentile_ms(latencies_s, 95),
        p99_ms=_percentile_ms(latencies_s, 99),
        statuses=dict(statuses),
        wrong=wrong,
    )


async def _client(
    client: httpx.AsyncClient,
    turns: Iterator[dict[str, Any]],
    until: float,
    statuses: Counter[str],
    latencies_s: list[float],
) -> int:
    """One client's loop; how many of its answers were wrong."""
    wrong = 0
    while time.perf_counter() < until:
        body = next(turns)
        sent = time.perf_counter()
        try:
            response = await client.post("/v1/extract", json=body)
        except httpx.TransportError as error:
            statuses[type(error).__name__] += 1
            continue
        statuses[str(response.status_code)] += 1
        if response.is_success:
            latencies_s.append(time.perf_counter() - sent)
            found = response.json()["entities"]
            wrong += any(body["text"][entity["start"] : entity["end"]] != entity["text"] for entity in found)
    return wrong


def _percentile_ms(sorted_s: Sequence[float], percent: int) -> float:
    if not sorted_s:
        return float("nan")
    return sorted_s[min(len(sorted_s) - 1, len(sorted_s) * percent // 100)] * 1000
