"""The load generator: a closed loop of clients, or an open loop that sends on a schedule whatever the server does.

It shares the machine with the server, so it only sends bytes and keeps bytes; answers are judged after the run.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

TIMEOUT_S = 120.0
_HEADERS = {"Content-Type": "application/json"}
_OK = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for body number `body`; `status` is an HTTP status, or an error's name when there was none."""

    body: int
    status: str
    content: bytes
    latency_s: float


@dataclass(slots=True)
class Run:
    """One run of `seconds` until the last answer. `lag_s`: how late the generator itself sent at worst."""

    replies: list[Reply] = field(default_factory=list)
    seconds: float = 0.0
    lag_s: float = 0.0
    unanswered: int = 0

    def summary(self) -> dict[str, Any]:
        """Plain values; latencies are of answers with status 200."""
        latencies_s = sorted(reply.latency_s for reply in self.replies if reply.status == str(_OK))
        return {
            "requests": len(self.replies) + self.unanswered,
            "seconds": self.seconds,
            "requests_per_s": len(latencies_s) / self.seconds if self.seconds else 0.0,
            **{f"p{percent}_ms": percentile_ms(latencies_s, percent) for percent in (50, 95, 99)},
            "latencies_ms": [percentile_ms(latencies_s, percent) for percent in range(1, 100)],
            "statuses": dict(sorted(Counter(reply.status for reply in self.replies).items())),
            "unanswered": self.unanswered,
            "generator_lag_ms": self.lag_s * 1000,
        }


def closed_loop(url: str, bodies: Sequence[bytes], *, concurrency: int, seconds: float, most: int | None = None) -> Run:
    """Send `bodies` round and round for `seconds`, or `most` of them: `concurrency` clients, each of which sends its
    next request when the last is answered."""
    return asyncio.run(_closed_loop(url, bodies, concurrency, seconds, most))


def open_loop(
    url: str, bodies: Sequence[bytes], *, rate: float, seconds: float, seed: int = 0, patience_s: float = 30.0
) -> Run:
    """Send at `rate` requests/s on average, at times drawn beforehand (Poisson), whether or not answers come.

    A latency counts from the moment at which a request was due, so a server that stalls pays for every request that
    became due meanwhile. What has no answer `patience_s` after the last was due is counted as unanswered.
    """
    return asyncio.run(_open_loop(url, bodies, schedule(rate, seconds, seed), patience_s))


def schedule(rate: float, seconds: float, seed: int = 0) -> list[float]:
    """When requests are due, in seconds from the start: a Poisson process."""
    rng = random.Random(seed)
    due = itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())
    return list(itertools.takewhile(lambda at: at < seconds, due))


def percentile_ms(sorted_s: Sequence[float], percent: float) -> float | None:
    """The value that `percent` % of the values do not exceed (nearest rank), in ms; None where there are no values."""
    if not sorted_s:
        return None
    rank = -(-len(sorted_s) * percent // 100)
    return sorted_s[max(0, int(rank) - 1)] * 1000


async def _closed_loop(url: str, bodies: Sequence[bytes], concurrency: int, seconds: float, most: int | None) -> Run:
    run = Run()
    turns = itertools.islice(itertools.cycle(range(len(bodies))), most)
    async with _session(concurrency) as session:
        began = time.perf_counter()
        clients = (_client(session, url, bodies, turns, began + seconds, run) for _ in range(concurrency))
        await asyncio.gather(*clients)
        run.seconds = time.perf_counter() - began
    return run


async def _client(
    session: aiohttp.ClientSession, url: str, bodies: Sequence[bytes], turns: Iterator[int], until: float, run: Run
) -> None:
    while time.perf_counter() < until and (body := next(turns, None)) is not None:
        run.replies.append(await _ask(session, url, bodies, body, time.perf_counter()))


async def _open_loop(url: str, bodies: Sequence[bytes], due_s: Sequence[float], patience_s: float) -> Run:
    run = Run()
    async with _session(0) as session:
        began = time.perf_counter()
        asked = []
        for number, at_s in enumerate(due_s):
            await asyncio.sleep(max(0.0, began + at_s - time.perf_counter()))
            run.lag_s = max(run.lag_s, time.perf_counter() - began - at_s)
            asked.append(asyncio.create_task(_ask(session, url, bodies, number % len(bodies), began + at_s)))
        answered, pending = await asyncio.wait(asked, timeout=patience_s) if asked else (set(), set())
        run.seconds = time.perf_counter() - began
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    run.replies = [task.result() for task in asked if task in answered]
    run.unanswered = len(pending)
    return run


async def _ask(session: aiohttp.ClientSession, url: str, bodies: Sequence[bytes], body: int, since: float) -> Reply:
    try:
        async with session.post(url, data=bodies[body], headers=_HEADERS) as response:
            content = await response.read()
            status = str(response.status)
    except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError) as error:
        content, status = b"", type(error).__name__
    return Reply(body, status, content, time.perf_counter() - since)


def _session(connections: int) -> aiohttp.ClientSession:
    """0 connections: as many as are needed."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
