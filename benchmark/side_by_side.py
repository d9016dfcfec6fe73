"""Two servers under the same load, in turns: `python -m benchmark.side_by_side instances`, or `ray`; 4 minutes each.

instances: one instance of two lanes and two instances of one, on a machine of two cores. ray: one replica under BentoML
and on Ray Serve, with the same settings (needs the extra `ray`). The machine must do nothing else. Writes
docs/measurements/instances.json or ray-throughput.json: requests per second, latencies, CPU time and memory of each.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmark import results_file
from benchmark.server import started
from benchmark.table import table
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import closed_loop
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT

ROUNDS = 3
SECONDS = {1: 4.0, 8: 4.0, 32: 12.0}
"""How long each number of concurrent requests is measured."""

MOST = max(SECONDS)
_WARM_UP_S = 4.0
_UNLIMITED = {"GLINER_MAX_QUEUE_WAIT_S": "60", "RAY_ADDRESS": "local"}
"""Nothing is refused, so that what is compared is throughput."""


@dataclass(frozen=True, slots=True)
class Side:
    """A server. arguments: of `gliner-bento serve`."""

    name: str
    arguments: Sequence[str]


_COMMON = ("--dtype", "bfloat16", "--torch-threads", "1")
COMPARISONS = {
    "instances": (
        "instances.json",
        Side("one instance, 2 lanes", [*_COMMON, "--num-instances", "1", "--inference-lanes", "2"]),
        Side("two instances, 1 lane each", [*_COMMON, "--num-instances", "2", "--inference-lanes", "1"]),
    ),
    "ray": ("ray-throughput.json", Side("BentoML", ["--backend", "bentoml"]), Side("Ray", ["--backend", "ray"])),
}
"""File of the results, and the two sides; the ratio is that of the second to the first."""

_COLUMNS = {"requests_per_s": 1, "p50_ms": 0, "p95_ms": 0, "model_cpu_ms": 1, "cpu_ms": 1, "resident_mb": 0}
"""Quantities of a row, and their decimals. model_cpu_ms: per request, of the process with the model; cpu_ms: of all."""


def main(name: str) -> None:
    """Measure, write and print."""
    file, *sides = COMPARISONS[name]
    at_start, points = provenance(), measure(sides)
    rows: list[dict[str, Any]] = [
        {"concurrency": concurrency, "side": side.name, **medians(points, side, concurrency)}
        for concurrency in SECONDS
        for side in sides
    ]
    command = f"python -m benchmark.side_by_side {name}"
    results_file.write(
        PROJECT_ROOT / "docs" / "measurements" / file, {**at_start, "command": command, "rows": rows, "points": points}
    )
    lines = [
        [one["concurrency"], one["side"], *(f"{one[column]:.{decimals}f}" for column, decimals in _COLUMNS.items())]
        for one in rows
    ]
    ratio = rows[-1]["requests_per_s"] / rows[-2]["requests_per_s"]
    sys.stdout.write(
        f"{provenance_line(command, at_start)}\n\n{table(['concurrency', 'side', *_COLUMNS], lines)}\n\n"
        f"Throughput at {MOST} concurrent requests: {ratio:.3f}x.\n"
    )


def measure(sides: Sequence[Side]) -> list[dict[str, Any]]:
    """A point per round, side and number of concurrent requests. Raises RuntimeError if a request fails, or if the
    sides do not serve the same model in the same dtype with the same number of threads."""
    bodies = workload.encoded(workload.WORKLOADS["mixed"](256, 0))
    points = [
        {"round": number, "side": side.name, **point}
        for number in range(ROUNDS)
        for side in sides
        for point in _points(side, bodies)
    ]
    if failed := sum(point["failed"] for point in points):
        raise RuntimeError(f"{failed} requests failed")
    if len(served := {str(point.pop("served")) for point in points}) > 1:
        raise RuntimeError(f"the sides differ: {served}")
    return points


def medians(points: Sequence[Mapping[str, Any]], side: Side, concurrency: int) -> dict[str, float]:
    """Over the rounds."""
    own = [point for point in points if (point["side"], point["concurrency"]) == (side.name, concurrency)]
    return {name: median(point[name] for point in own) for name in _COLUMNS}


def provenance_line(command: str, at_start: Mapping[str, Any]) -> str:
    """How it was measured, for a page."""
    machine = at_start["machine"]
    seconds = ", ".join(f"{duration:g}" for duration in SECONDS.values())
    return (
        f"`{command}`, commit {str(at_start['commit'])[:12]}, {machine['cpu']}, {machine['cores']} cores.\n"
        f"Medians of {ROUNDS} rounds, in turns ({seconds} s for {', '.join(map(str, SECONDS))} concurrent requests); "
        "workload `mixed`."
    )


def _points(side: Side, bodies: list[bytes]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", *side.arguments, "--port", "{port}"]
    env = {**_UNLIMITED, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(command, cwd=PROJECT_ROOT, log=Path(folder) / "log", env=env, start_s=300.0) as server,
    ):
        _await_all(server.url)
        url, points = f"{server.url}/v1/extract", []
        closed_loop(url, bodies, concurrency=MOST, seconds=_WARM_UP_S)
        for concurrency, seconds in SECONDS.items():
            before = server.cpu_seconds()
            run = closed_loop(url, bodies, concurrency=concurrency, seconds=seconds)
            used = {pid: after - before.get(pid, 0.0) for pid, after in server.cpu_seconds().items()}
            requests = len(run.replies)
            points.append(
                {
                    "concurrency": concurrency,
                    "failed": sum(reply.status != "200" for reply in run.replies),
                    "model_cpu_ms": 1000 * max(used.values()) / requests,
                    "cpu_ms": 1000 * sum(used.values()) / requests,
                    "resident_mb": server.resident_bytes()["all_processes"] / 1e6,
                    "served": _served(server.url),
                    **run.summary(),
                }
            )
        return points


def _await_all(url: str) -> None:
    """Until every replica is ready: a server is ready when the first is."""
    while any(one["state"] != "ready" for one in httpx.get(f"{url}/v1/replicas").json()["replicas"]):
        time.sleep(0.5)


def _served(url: str) -> tuple[str, str, int]:
    """Model, dtype and lanes, each of which has the same number of threads."""
    model = httpx.get(f"{url}/v1/model").json()
    lanes = httpx.get(f"{url}/v1/status").json()["lanes"]
    return model["model"], model["dtype"], lanes["total"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmark.side_by_side")
    parser.add_argument("comparison", choices=[*COMPARISONS])
    main(parser.parse_args().comparison)
