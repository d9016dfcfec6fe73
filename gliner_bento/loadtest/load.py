"""The load generator: a closed loop of clients, or an open loop that sends on a schedule, whether or not the server
responds.

It may run on the server's machine, so it only sends and stores bytes; responses are parsed after the run.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gliner_bento.http.connections import Connections, Response

TIMEOUT_S = 120.0
_HEADERS = {"Content-Type": "application/json"}
_OK = 200


@dataclass(frozen=True, slots=True)
class TimedResponse:
    """A response. body_index: index of the request's body in `bodies`. status: HTTP status, or the name of the error
    if there was no response. retry_after: whether the response has the header Retry-After.
    """

    body_index: int
    status: str
    content: bytes
    latency_s: float
    retry_after: bool = False


@dataclass(slots=True)
class Run:
    """The result of a run. seconds: its duration. generator_s: CPU time of the generator. Set only by an open loop:
    `lag_s`, the longest delay from when a request was due until it was sent; `connections`, how many were opened;
    `unanswered`, how many requests had no response after `grace_s`."""

    replies: list[TimedResponse] = field(default_factory=list)
    seconds: float = 0.0
    lag_s: float = 0.0
    generator_s: float = 0.0
    connections: int = 0
    unanswered: int = 0

    def summary(self) -> dict[str, Any]:
        """The run's numbers, for JSON. Rate and latencies count only responses with status 200."""
        latencies_s = sorted(reply.latency_s for reply in self.replies if reply.status == str(_OK))
        return {
            "requests": len(self.replies) + self.unanswered,
            "seconds": self.seconds,
            "requests_per_s": len(latencies_s) / self.seconds if self.seconds else 0.0,
            **{f"p{percent}_ms": percentile_ms(latencies_s, percent) for percent in (50, 95, 99)},
            "statuses": dict(sorted(Counter(reply.status for reply in self.replies).items())),
            "unanswered": self.unanswered,
            "generator_lag_ms": self.lag_s * 1000,
            "generator_cpu_s": self.generator_s,
        }


def closed_loop(
    url: str,
    bodies: Sequence[bytes],
    *,
    concurrency: int,
    seconds: float,
    max_requests: int | None = None,
    api_key: str | None = None,
) -> Run:
    """Cycle through `bodies` for `seconds`, or until `max_requests` are sent. Each of `concurrency` clients sends its
    next request when its last one is answered."""
    return _timed(_closed_loop(url, bodies, concurrency, seconds, max_requests, api_key))


def open_loop(
    url: str,
    bodies: Sequence[bytes],
    *,
    rate: float,
    seconds: float,
    grace_s: float = 30.0,
    max_connections: int = 0,
    api_key: str | None = None,
) -> Run:
    """Send `rate` requests/s on average, at the times of `schedule`, whether or not responses arrive.

    A latency counts from the time at which a request was due, so a server that stalls is charged for every request
    that became due meanwhile. A request without a response `grace_s` after the last one was due counts as unanswered.
    max_connections: maximum number of concurrent requests, beyond which requests wait for a connection; 0: no limit.
    """
    return _timed(_open_loop(url, bodies, schedule(rate, seconds), grace_s, max_connections, api_key))


def schedule(rate: float, seconds: float, seed: int = 0) -> list[float]:
    """When requests are due, in seconds from the start, for `seconds`: a Poisson process drawn from `seed`."""
    rng = random.Random(seed)
    intervals_s = (rng.expovariate(rate) for _ in itertools.count())
    due_s = itertools.accumulate(intervals_s)
    return list(itertools.takewhile(lambda at_s: at_s < seconds, due_s))


def percentile_ms(sorted_s: Sequence[float], percent: float) -> float | None:
    """The value that `percent` % of the values do not exceed (nearest rank), in ms; None if there are no values."""
    if not sorted_s:
        return None
    quotient, remainder = divmod(len(sorted_s) * percent, 100)
    rank = int(quotient) + (remainder > 0)  # rounded up
    return sorted_s[max(0, rank - 1)] * 1000


def _timed(load: Coroutine[Any, Any, Run]) -> Run:
    start_s = time.process_time()
    gc_was_enabled = gc.isenabled()
    gc.disable()  # a collection takes longer than a request, and would delay requests that are due
    try:
        run = asyncio.run(load)
    finally:
        if gc_was_enabled:
            gc.enable()
    run.generator_s = time.process_time() - start_s
    return run


async def _closed_loop(
    url: str, bodies: Sequence[bytes], concurrency: int, seconds: float, max_requests: int | None, api_key: str | None
) -> Run:
    run = Run()
    indexes = itertools.islice(itertools.cycle(range(len(bodies))), max_requests)
    with _connections(url, api_key) as connections:
        start_s = time.perf_counter()
        clients = (_client(connections, bodies, indexes, start_s + seconds, run) for _ in range(concurrency))
        await asyncio.gather(*clients)
        run.seconds = time.perf_counter() - start_s
    return run


async def _client(
    connections: Connections, bodies: Sequence[bytes], indexes: Iterator[int], end_s: float, run: Run
) -> None:
    while (start_s := time.perf_counter()) < end_s and (index := next(indexes, None)) is not None:
        try:
            response = await asyncio.wait_for(connections.send(bodies[index]), TIMEOUT_S)
        except asyncio.TimeoutError:
            response = Response("TimeoutError", at_s=time.perf_counter())
        run.replies.append(_timed_response(index, response, start_s))


async def _open_loop(
    url: str, bodies: Sequence[bytes], due_s: Sequence[float], grace_s: float, max_connections: int, api_key: str | None
) -> Run:
    run = Run()
    with _connections(url, api_key, max_connections) as connections:
        start_s = time.perf_counter()
        sent = []
        for number, at_s in enumerate(due_s):
            if (wait_s := start_s + at_s - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            run.lag_s = max(run.lag_s, time.perf_counter() - start_s - at_s)
            sent.append(connections.send(bodies[number % len(bodies)]))
        answered, pending = await asyncio.wait(sent, timeout=grace_s) if sent else (set(), set())
        run.seconds = time.perf_counter() - start_s
        run.connections = connections.opened
        for future in pending:
            future.cancel()
    run.replies = [
        _timed_response(number % len(bodies), future.result(), start_s + at_s)
        for number, (future, at_s) in enumerate(zip(sent, due_s, strict=True))
        if future in answered
    ]
    run.unanswered = len(pending)
    return run


def _timed_response(index: int, response: Response, since_s: float) -> TimedResponse:
    return TimedResponse(index, response.status, response.content, response.at_s - since_s, response.retry_after)


@contextmanager
def _connections(url: str, api_key: str | None, limit: int = 0) -> Iterator[Connections]:
    connections = Connections(url, _HEADERS | authorization(api_key), limit)
    try:
        yield connections
    finally:
        connections.close()


def authorization(api_key: str | None) -> dict[str, str]:
    """The request headers with an API key."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}
