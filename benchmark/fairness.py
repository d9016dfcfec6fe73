"""The section `fairness`: a server with two API keys. Tenant B sends a few short texts per second, first alone, then
beside tenant A with 64 connections of long texts: of one pass, then of several.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import aiohttp

from benchmark import generated
from benchmark.bench import DEMO, Bench
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import authorization, closed_loop, open_loop
from gliner_bento.storage.api_keys import hash_of

KEYS = {"a": "key of tenant a", "b": "key of tenant b"}
CONNECTIONS = 64
RATE = 4.0
WORDS = (300, 2000)
TARGET = 2.0
_LEAD_S = 5.0  # A is alone for this long before B begins


class Flood:
    """Tenant A, in a thread of its own: connections that send one long text after another, and wait as long as
    Retry-After says when they are refused. statuses: of the responses so far."""

    def __init__(self, url: str, bodies: Sequence[bytes], connections: int) -> None:
        self.statuses: Counter[str] = Counter()
        self._url = url
        self._bodies = bodies
        self._connections = connections
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=self._connections)
        async with aiohttp.ClientSession(connector=connector, headers=authorization(KEYS["a"])) as session:
            connections = [asyncio.ensure_future(self._send(session, first)) for first in range(self._connections)]
            await asyncio.to_thread(self._ended.wait)
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _send(self, session: aiohttp.ClientSession, number: int) -> None:
        while True:
            body = self._bodies[number % len(self._bodies)]
            number += self._connections
            try:
                async with session.post(self._url, data=body, headers={"Content-Type": "application/json"}) as answer:
                    await answer.read()
                    self.statuses[str(answer.status)] += 1
                    wait_s = int(answer.headers.get("Retry-After", 0))
            except aiohttp.ClientError as error:
                self.statuses[type(error).__name__] += 1
                wait_s = 1
            await asyncio.sleep(wait_s)


def fairness(bench: Bench, section: str) -> list[Row]:
    """B's p95 beside A over its p95 alone, for each length of A's texts."""
    keys = json.dumps([{"name": name, "sha256": hash_of(key)} for name, key in KEYS.items()])
    short, seconds = workload.encoded(workload.short(256)), bench.plan.seconds
    with bench.ours(DEMO, api_keys=keys) as server:
        url = server.url + EXTRACT

        def b() -> dict[str, Any]:
            return open_loop(url, short, rate=RATE, seconds=seconds, api_key=KEYS["b"]).summary()

        closed_loop(url, short, concurrency=4, seconds=min(5.0, seconds), api_key=KEYS["b"])
        alone, beside = b(), {}
        for words in WORDS:
            long = workload.encoded([generated.document(words, seed) for seed in range(32)])
            with Flood(url, long, CONNECTIONS) as flood:
                time.sleep(_LEAD_S)
                beside[words] = {"b": b(), "a_statuses": dict(flood.statuses)}
            time.sleep(_LEAD_S)
    bench.extra["fairness"] = {"rate": RATE, "connections": CONNECTIONS, "b_alone": alone, "beside_a": beside}
    return [
        Row(section, f"p95 of short texts beside {CONNECTIONS} connections of texts of {words} words", "ms",
            one["b"]["p95_ms"], alone["p95_ms"], "alone", TARGET, "less",
            f"responses of the short texts {one['b']['statuses']}, of the long ones {one['a_statuses']}")
        for words, one in beside.items()
    ]  # fmt: skip
