"""Fairness among tenants: `python -m benchmark.fairness`.

Starts a server with two API keys. Tenant B asks for a few short texts per second, first alone, then beside tenant A
with many connections of long texts. Prints a line and writes fairness.json: B's latencies of both, and what A got.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from benchmark.server import Server, started
from gliner_bento.api_keys import hash_of
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import authorization, closed_loop, open_loop
from gliner_bento.loadtest.machine import provenance

ROOT = Path(__file__).resolve().parents[1]
KEYS = {"a": "key of tenant a", "b": "key of tenant b"}
TARGET = 2.0
_LEAD_S = 5.0  # A is alone for this long before B begins


class Flood:
    """Tenant A, in a thread of its own: connections that send one long text after another.

    patient: whether they wait as Retry-After says before they send again. statuses: of the answers so far.
    """

    def __init__(self, url: str, bodies: Sequence[bytes], connections: int, *, patient: bool) -> None:
        self.statuses: Counter[str] = Counter()
        self._url = url
        self._bodies = bodies
        self._connections = connections
        self._patient = patient
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
                    wait_s = int(answer.headers.get("Retry-After", 0)) if self._patient else 0
            except aiohttp.ClientError as error:
                self.statuses[type(error).__name__] += 1
                wait_s = 1
            await asyncio.sleep(wait_s)


def measure(server: Server, flags: argparse.Namespace) -> dict[str, Any]:
    """B alone, then beside A."""
    url = f"{server.url}/v1/extract"
    short, seconds = workload.encoded(workload.short(256)), flags.seconds
    long = workload.encoded([workload.document(flags.words, seed) for seed in range(32)])
    closed_loop(url, short, concurrency=4, seconds=min(5.0, seconds), api_key=KEYS["b"])

    def b(seed: int) -> dict[str, Any]:
        return open_loop(url, short, rate=flags.rate, seconds=seconds, seed=seed, api_key=KEYS["b"]).summary()

    alone = b(1)
    with Flood(url, long, flags.connections, patient=not flags.impatient) as flood:
        time.sleep(_LEAD_S)
        beside = b(1)
    ratio = beside["p95_ms"] / alone["p95_ms"] if alone["p95_ms"] and beside["p95_ms"] else None
    return {"b_alone": alone, "b_beside_a": beside, "a_statuses": dict(flood.statuses), "p95_ratio": ratio}


def line(result: dict[str, Any]) -> str:
    """The result in one line."""
    alone, beside, ratio = result["b_alone"], result["b_beside_a"], result["p95_ratio"]
    answered = beside["statuses"].get("200", 0)
    if ratio is None:
        return f"B is not answered: {beside['statuses']}"
    verdict = "met" if ratio <= TARGET and answered == beside["requests"] else "missed"
    return (
        f"B's p95 {beside['p95_ms']:.0f} ms beside A, {alone['p95_ms']:.0f} ms alone: {ratio:.2f}x, "
        f"target {TARGET:g}x: {verdict}; B's answers {beside['statuses']}, A's {result['a_statuses']}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.fairness", description="Fairness among two tenants.")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (default: 30)")
    parser.add_argument("--connections", type=int, default=64, help="of tenant A (default: 64)")
    parser.add_argument("--words", type=int, default=2000, help="of A's texts; 300: one pass each (default: 2000)")
    parser.add_argument("--rate", type=float, default=4.0, help="requests per second of tenant B (default: 4)")
    parser.add_argument("--impatient", action="store_true", help="A sends again at once when it is refused")
    parser.add_argument("--out", type=Path, default=Path("fairness.json"), help="file of the result")
    flags = parser.parse_args(argv)
    keys = json.dumps([{"name": name, "sha256": hash_of(key)} for name, key in KEYS.items()])
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
    with (
        tempfile.TemporaryDirectory() as folder,
        started(command, cwd=ROOT, log=Path(folder, "server.log"), env={"GLINER_API_KEYS": keys}) as server,
    ):
        result = provenance() | vars(flags) | {"out": str(flags.out)} | measure(server, flags)
    flags.out.write_text(json.dumps(result, indent=2), encoding="utf-8")
    sys.stdout.write(line(result) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
