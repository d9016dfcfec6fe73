"""Throughput of one replica on Ray Serve and of one under BentoML: `python -m benchmark.ray_throughput`, 6 minutes.

Needs the extra `ray`, and a machine that does nothing else. Both servers have the same settings and cores; they run one
at a time, in turns. Writes docs/measurements/ray-throughput.json and .md.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.server import started
from gliner_bento.loadtest import results_file, workload
from gliner_bento.loadtest.load import closed_loop
from gliner_bento.loadtest.machine import provenance
from gliner_bento.loadtest.table import table
from gliner_bento.settings import PROJECT_ROOT

COMMAND = "python -m benchmark.ray_throughput"
FOLDER = PROJECT_ROOT / "docs" / "measurements"
BACKENDS = ("bentoml", "ray")
ROUNDS = 3
SECONDS = 20.0
WARM_UP_S = 5.0
CONCURRENCIES = (1, 8, 32)
TARGET = 0.85
CPU_COLUMNS = ("BentoML, model", "BentoML, all", "Ray, model", "Ray, all")


def main() -> None:
    """Measure, write and print."""
    at_start = provenance()
    bodies = workload.encoded(workload.WORKLOADS["mixed"](256, 0))
    points = [
        {"round": number, "backend": backend, **point}
        for number in range(ROUNDS)
        for backend in BACKENDS
        for point in measure(backend, bodies)
    ]
    rows = [row(points, concurrency) for concurrency in CONCURRENCIES]
    met = rows[-1]["ratio"] >= TARGET and not any(point["failed"] for point in points)
    data = {**at_start, "command": COMMAND, "target": TARGET, "met": met, "rows": rows, "points": points}
    results_file.write(FOLDER / "ray-throughput.json", data)
    text = page(at_start, rows, met=met)
    (FOLDER / "ray-throughput.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def measure(backend: str, bodies: list[bytes]) -> list[dict[str, Any]]:
    """Requests/s and latencies of one server, at each concurrency."""
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--backend", backend, "--port", "{port}"]
    with (
        tempfile.TemporaryDirectory() as folder,
        started(command, cwd=PROJECT_ROOT, log=Path(folder) / "log", env=environment(), start_s=300.0) as server,
    ):
        url = f"{server.url}/v1/extract"
        closed_loop(url, bodies, concurrency=max(CONCURRENCIES), seconds=WARM_UP_S)
        points = []
        for concurrency in CONCURRENCIES:
            before = server.cpu_seconds()
            run = closed_loop(url, bodies, concurrency=concurrency, seconds=SECONDS)
            used = [after - before.get(pid, 0.0) for pid, after in server.cpu_seconds().items()]
            statuses = [reply.status for reply in run.replies]
            failed = sum(status != "200" for status in statuses)
            summary = {name: value for name, value in run.summary().items() if name != "latencies_ms"}
            cpu = {"model": 1000 * max(used) / len(statuses), "all": 1000 * sum(used) / len(statuses)}
            points.append({"concurrency": concurrency, "failed": failed, "cpu_ms": cpu, **summary})
        return points


def environment() -> dict[str, str]:
    """Nothing is refused, so that what is compared is throughput. Ray's own settings are its defaults."""
    return {"GLINER_MAX_QUEUE_WAIT_S": "60", "RAY_ADDRESS": "local", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def row(points: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """Medians over the rounds."""
    own = {
        backend: [point for point in points if (point["backend"], point["concurrency"]) == (backend, concurrency)]
        for backend in BACKENDS
    }
    medians = {backend: median(point["requests_per_s"] for point in of_it) for backend, of_it in own.items()}
    cpu = {
        f"{backend}_{part}_cpu_ms": median(point["cpu_ms"][part] for point in of_it)
        for backend, of_it in own.items()
        for part in ("model", "all")
    }
    return {"concurrency": concurrency, **medians, "ratio": medians["ray"] / medians["bentoml"], **cpu}


def cpu_of(one: dict[str, Any]) -> list[str]:
    """The CPU times of a row, in the order of `CPU_COLUMNS`."""
    return [f"{one[f'{backend}_{part}_cpu_ms']:.1f}" for backend in BACKENDS for part in ("model", "all")]


def page(at_start: dict[str, Any], rows: list[dict[str, Any]], *, met: bool) -> str:
    """The results as Markdown."""
    lines = [
        [str(one["concurrency"]), f"{one['bentoml']:.1f}", f"{one['ray']:.1f}", f"{one['ratio']:.2f}x"] for one in rows
    ]
    machine = at_start["machine"]
    return "\n".join(
        [
            "# One replica on Ray Serve and under BentoML\n",
            f"`{COMMAND}`, commit {str(at_start['commit'])[:12]}, {machine['cpu']}, {machine['cores']} cores.",
            f"Medians of {ROUNDS} rounds of {SECONDS:g} s, in turns; workload `mixed`, default settings.\n",
            table(["concurrent requests", "BentoML, requests/s", "Ray, requests/s", "ratio"], lines),
            "\nCPU time per request, in ms: of the process with the model, and of all processes. Where the gateway and",
            "Ray's proxy have cores of their own, the first decides; where all share the cores, the second.\n",
            table(["concurrent requests", *CPU_COLUMNS], [[one["concurrency"], *cpu_of(one)] for one in rows]),
            f"\nTarget: {TARGET}x at {CONCURRENCIES[-1]} concurrent requests: {'met' if met else 'missed'}.\n",
        ]
    )


if __name__ == "__main__":
    main()
