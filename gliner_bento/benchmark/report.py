"""A run as a file that can be compared later: results with the commit, the settings and the hardware they belong to."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from gliner_bento.benchmark.load import Measured, closed_loop
from gliner_bento.benchmark.server import running_server
from gliner_bento.benchmark.workload import mixed
from gliner_bento.settings import ENV_PREFIX, PROJECT_ROOT

CONCURRENCIES = (1, 8, 32)
RUN_S = 20.0
WARM_UP_S = 5.0
RESULTS = Path("build") / "bench"
_PACKAGES = ("bentoml", "gliner", "torch", "transformers")


def bench(url: str | None, results: Path = RESULTS, *, run_s: float = RUN_S) -> Path:
    """Measure the server at `url`, or one that is started for it, at several concurrencies; the results' file."""
    results.mkdir(parents=True, exist_ok=True)
    if url is not None:
        return _measure(url, results, run_s)
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
    with running_server(command, cwd=PROJECT_ROOT, log=results / "server.log", env=_settings()) as started:
        return _measure(started, results, run_s)


def table(path: Path) -> str:
    """The results in `path` as a table for people."""
    data = json.loads(path.read_text("utf-8"))
    lines = ["concurrency  requests/s   p50 ms   p95 ms   p99 ms  answers"]
    for run in data["runs"]:
        answers = ", ".join(f"{count} x {status}" for status, count in run["statuses"].items())
        latencies = "".join(f"{run[name]:9.1f}" for name in ("p50_ms", "p95_ms", "p99_ms"))
        lines.append(f"{run['concurrency']:11d}  {run['requests_per_s']:10.1f}{latencies}  {answers}")
    return "\n".join([*lines, f"written to {path}", ""])


def _measure(url: str, results: Path, run_s: float) -> Path:
    bodies = mixed(256)
    closed_loop(url, bodies, concurrency=max(CONCURRENCIES), seconds=min(WARM_UP_S, run_s))
    runs = [closed_loop(url, bodies, concurrency=number, seconds=run_s) for number in CONCURRENCIES]
    path = results / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(_report(url, runs), indent=2) + "\n", encoding="utf-8")
    return path


def _report(url: str, runs: Sequence[Measured]) -> dict[str, Any]:
    return {
        "commit": _output("git", "rev-parse", "HEAD"),
        "uncommitted": bool(_output("git", "status", "--porcelain")),
        "server": httpx.get(f"{url}/v1/model", timeout=30).json(),
        "settings": _settings(),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "python": platform.python_version()},
        "packages": {name: version(name) for name in _PACKAGES},
        "workload": "mixed: 6 to 250 words, three label sets",
        "runs": [run.as_data() for run in runs],
    }


def _settings() -> dict[str, str]:
    """The settings in this environment, which a server that is started here gets; another server has its own."""
    return {name: value for name, value in os.environ.items() if name.startswith(ENV_PREFIX)}


def _output(*command: str) -> str | None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT_ROOT)
    return ran.stdout.strip() if ran.returncode == 0 else None


def _cpu() -> str:
    """The processor's name where Linux tells it."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()
