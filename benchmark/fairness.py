"""Fairness among tenants: `python -m benchmark --fairness`.

Starts a server with two API keys. Tenant B asks for a few short texts per second, first alone, then beside tenant A
with 64 connections of long texts: of one pass, then of several. Writes fairness.json: B's latencies, and what A got.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from benchmark import generated, results_file
from benchmark.server import Server, started
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import authorization, closed_loop, open_loop
from gliner_bento.loadtest.machine import provenance
from gliner_bento.storage.api_keys import hash_of

ROOT = Path(__file__).resolve().parents[1]
KEYS = {"a": "key of tenant a", "b": "key of tenant b"}
CONNECTIONS = 64
RATE = 4.0
WORDS = (300, 2000)
TARGET = 2.0
_LEAD_S = 5.0  # A is alone for this long before B begins


class Flood:
    """Tenant A, in a thread of its own: connections that send one long text after another, and wait as long as
    Retry-After says when they are refused. statuses: of the answers so far."""

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


def compare(folder: Path, seconds: float) -> str:
    """Measure for so many seconds each, and write the result into `folder`; a line for each kind of long texts."""
    keys = json.dumps([{"name": name, "sha256": hash_of(key)} for name, key in KEYS.items()])
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
    with started(command, cwd=ROOT, log=folder / "server.log", env={"GLINER_API_KEYS": keys}) as server:
        result = provenance() | measure(server, seconds)
    results_file.write(folder / "fairness.json", result)
    return "".join(f"{line(result['b_alone'], one)}\n" for one in result["beside_a"])


def measure(server: Server, seconds: float) -> dict[str, Any]:
    """B alone, then beside A."""
    url = f"{server.url}/v1/extract"
    short = workload.encoded(workload.short(256))

    def b() -> dict[str, Any]:
        return open_loop(url, short, rate=RATE, seconds=seconds, api_key=KEYS["b"]).summary()

    closed_loop(url, short, concurrency=4, seconds=min(5.0, seconds), api_key=KEYS["b"])
    alone, beside = b(), []
    for words in WORDS:
        long = workload.encoded([generated.document(words, seed) for seed in range(32)])
        with Flood(url, long, CONNECTIONS) as flood:
            time.sleep(_LEAD_S)
            summary = b()
        ratio = summary["p95_ms"] / alone["p95_ms"] if alone["p95_ms"] and summary["p95_ms"] else None
        beside.append({"words": words, "b": summary, "a_statuses": dict(flood.statuses), "p95_ratio": ratio})
        time.sleep(_LEAD_S)
    return {"rate": RATE, "connections": CONNECTIONS, "b_alone": alone, "beside_a": beside}


def line(alone: dict[str, Any], beside: dict[str, Any]) -> str:
    """The result beside one kind of long texts."""
    b, ratio = beside["b"], beside["p95_ratio"]
    if ratio is None:
        return f"A's texts of {beside['words']} words: B is not answered: {b['statuses']}"
    met = ratio <= TARGET and b["statuses"].get("200", 0) == b["requests"]
    return (
        f"A's texts of {beside['words']} words: B's p95 {b['p95_ms']:.0f} ms, alone {alone['p95_ms']:.0f} ms: "
        f"{ratio:.2f}x, target {TARGET:g}x: {'met' if met else 'missed'}; answers of B {b['statuses']}, of A "
        f"{beside['a_statuses']}"
    )
