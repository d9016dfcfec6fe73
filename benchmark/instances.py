"""One instance with two lanes and two instances with one: `python -m benchmark.instances`, 4 minutes.

Needs a machine of two cores that does nothing else. Also measures what a call to a runner costs through a fleet. Writes
docs/measurements/instances.json.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import uvicorn

from benchmark import results_file
from benchmark.fake_engine import FakeEngine
from benchmark.side_by_side import SECONDS, Side, measure, medians, provenance_line
from benchmark.table import table
from gliner_bento.loadtest.machine import provenance
from gliner_bento.replicas.base import Call, Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.local import LocalReplica
from gliner_bento.replicas.local_adapters import LocalAdapters
from gliner_bento.replicas.uploads import Uploads
from gliner_bento.scheduler.scheduler import SchedulerConfig
from gliner_bento.settings import PROJECT_ROOT, Settings
from gliner_bento.types import Item

COMMAND = "python -m benchmark.instances"
FILE = PROJECT_ROOT / "docs" / "measurements" / "instances.json"
_COMMON = ("--dtype", "bfloat16", "--torch-threads", "1")
LANES = Side("one instance, 2 lanes", [*_COMMON, "--num-instances", "1", "--inference-lanes", "2"])
INSTANCES = Side("two instances, 1 lane each", [*_COMMON, "--num-instances", "2", "--inference-lanes", "1"])
SIDES = (LANES, INSTANCES)
CALLS = 3000
TARGET_MS = 1.0


def main() -> None:
    """Measure, write and print."""
    at_start = provenance()
    calls = asyncio.run(call_latencies())
    points = measure(SIDES)
    rows = [
        {"concurrency": concurrency, "side": side.name, **medians(points, side, concurrency)}
        for concurrency in SECONDS
        for side in SIDES
    ]
    data = {**at_start, "command": COMMAND, "calls_p50_ms": calls, "rows": rows, "points": points}
    results_file.write(FILE, data)
    sys.stdout.write(page(at_start, calls, rows))


async def call_latencies() -> dict[str, float]:
    """p50 of a call by one client, over HTTP to a runner whose model does nothing: straight, and through fleets.

    The calls are interleaved.
    """
    with tempfile.TemporaryDirectory() as folder:
        one, other = (Runner(Path(folder, name)) for name in ("one", "other"))
        options = FleetOptions(max_outstanding_tokens=65536, queue_capacity=1024)
        fleets = [Fleet({"one": one.client}, options), Fleet({"one": one.client, "other": other.client}, options)]
        ways: dict[str, Replica] = {"no fleet": one.client, "a fleet of one": fleets[0], "a fleet of two": fleets[1]}
        times_ms: dict[str, list[float]] = {name: [] for name in ways}
        for fleet in fleets:
            await fleet.status()
        item = Item("Ada Lovelace met Charles Babbage in London.", {"person": "person"})
        for number in range(CALLS):
            for name, replica in ways.items():
                began_s = time.perf_counter()
                await replica.extract([item], Call(str(number), time.monotonic() + 60))
                times_ms[name].append(1000 * (time.perf_counter() - began_s))
        for fleet in fleets:
            await fleet.close()
        for runner in (one, other):
            await runner.client.close()
            await asyncio.to_thread(runner.stop)
        return {name: median(times) for name, times in times_ms.items()}


class Runner:
    """A replica with a fake model behind the transport, on a Unix socket, in a thread."""

    def __init__(self, socket: Path) -> None:
        adapters = LocalAdapters(None, Uploads(socket.parent))
        self._replica = LocalReplica(
            FakeEngine(), Settings.load().decided_for("cpu").view(SchedulerConfig), adapters=adapters
        )
        app = ReplicaApp()
        app.bind(self._replica)
        self._server = uvicorn.Server(uvicorn.Config(app, uds=str(socket), lifespan="off", log_level="critical"))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.client = HttpReplica(socket.as_uri())

    def stop(self) -> None:
        """End its threads."""
        self._server.should_exit = True
        self._thread.join()
        self._replica.close()


def page(at_start: dict[str, Any], calls: dict[str, float], rows: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    columns = {"requests_per_s": 1, "p50_ms": 0, "p95_ms": 0, "cpu_ms": 1, "resident_mb": 0}  # and their decimals
    lines = [
        [str(one["concurrency"]), one["side"], *(f"{one[name]:.{decimals}f}" for name, decimals in columns.items())]
        for one in rows
    ]
    direct = calls["no fleet"]
    most = max(p50 - direct for p50 in calls.values())
    return "\n".join(
        [
            "# Lanes and instances on two cores\n",
            provenance_line(COMMAND, at_start),
            "bfloat16, one thread per lane.\n",
            table(
                ["concurrent requests", "server", "requests/s", "p50 ms", "p95 ms", "CPU ms per request", "memory MB"],
                lines,
            ),
            "\nMemory: resident, of all processes, including what they share.\n",
            "## What a fleet costs one client\n",
            f"p50 of {CALLS} interleaved calls to a runner over HTTP on a Unix socket, whose model does nothing:\n",
            table(
                ["way", "p50 ms", "more than without, ms"],
                [[name, f"{p50:.2f}", f"{p50 - direct:.2f}"] for name, p50 in calls.items()],
            ),
            f"\nTarget: at most {TARGET_MS:g} ms: {'met' if most <= TARGET_MS else 'missed'}.\n",
        ]
    )


if __name__ == "__main__":
    main()
