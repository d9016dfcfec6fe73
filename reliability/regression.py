"""Throughput and latency of this checkout against those of an earlier commit, in one sitting.

Serves both with this interpreter, each from its own files, and sends the same texts to one and then to the other, in
rounds, so that what else the machine does meets both.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmark.server import Server
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import closed_loop
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT
from reliability.measurement import Measurement, Target
from reliability.served import serving

CONCURRENCIES = (1, 32)
WORSE_PERCENT = 3.0
_TEXTS = 256
_WARM_UP_ROUNDS = 2


def regression(log: Path, *, against: str, seconds: float, rounds: int, settings: Mapping[str, object]) -> Measurement:
    """Measure both in `rounds` rounds of `seconds` at each concurrency. Raises ValueError for an unknown commit."""
    at_start = provenance()
    with (
        _files_of(against) as files,
        serving(log.with_suffix(".before"), settings, checkout=files) as before,
        serving(log, settings) as now,
    ):
        points = [_measure({"before": before, "now": now}, number, seconds, rounds) for number in CONCURRENCIES]
    targets = []
    for point in points:
        at = f"at concurrency {point['concurrency']}"
        targets += [
            Target(f"throughput {at}, worse by", "%", point["throughput_worse_percent"], WORSE_PERCENT),
            Target(f"p50 {at}, worse by", "%", point["p50_worse_percent"], WORSE_PERCENT),
            Target(f"failed requests {at}", "requests", point["failed"]["now"], 0),
        ]
    facts = {"against": against, "seconds": seconds, "rounds": rounds, "points": points, "settings": dict(settings)}
    command = f"make regression AGAINST={against} ARGS='--seconds {seconds:g} --rounds {rounds}'"
    return Measurement("regression", command, targets, facts, at_start, [_note(point) for point in points])


def worse_percent(before: list[float], now: list[float], *, more_is_better: bool) -> float:
    """How much worse `now` is, in percent of `before`: the median over the rounds; negative if it is better."""
    shares = [(b - n if more_is_better else n - b) / b for b, n in zip(before, now, strict=True)]
    return 100 * statistics.median(shares)


def _measure(servers: Mapping[str, Server], concurrency: int, seconds: float, rounds: int) -> dict[str, Any]:
    bodies = workload.encoded(workload.short(_TEXTS))
    texts_per_s: dict[str, list[float]] = {name: [] for name in servers}
    p50_ms: dict[str, list[float]] = {name: [] for name in servers}
    failed = dict.fromkeys(servers, 0)
    for number in range(_WARM_UP_ROUNDS + rounds):
        order = sorted(servers, reverse=bool(number % 2))
        for name in order:
            run = closed_loop(f"{servers[name].url}/v1/extract", bodies, concurrency=concurrency, seconds=seconds)
            summary = run.summary()
            failed[name] += summary["requests"] - summary["statuses"].get("200", 0)
            if number >= _WARM_UP_ROUNDS:
                texts_per_s[name].append(summary["requests_per_s"])
                p50_ms[name].append(summary["p50_ms"] or seconds * 1000)
    return {
        "concurrency": concurrency,
        "texts_per_s": texts_per_s,
        "p50_ms": p50_ms,
        "failed": failed,
        "throughput_worse_percent": worse_percent(texts_per_s["before"], texts_per_s["now"], more_is_better=True),
        "p50_worse_percent": worse_percent(p50_ms["before"], p50_ms["now"], more_is_better=False),
    }


def _note(point: Mapping[str, Any]) -> str:
    rates = {name: statistics.median(values) for name, values in point["texts_per_s"].items()}
    p50_ms = {name: statistics.median(values) for name, values in point["p50_ms"].items()}
    return (
        f"Concurrency {point['concurrency']}, medians: {rates['now']:.1f} texts/s (before {rates['before']:.1f}), "
        f"p50 {p50_ms['now']:.1f} ms (before {p50_ms['before']:.1f})."
    )


@contextlib.contextmanager
def _files_of(commit: str) -> Iterator[Path]:
    """A temporary folder with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="gliner-bento-") as folder:
        archive = Path(folder) / "files.tar"
        git = ["git", "archive", f"--output={archive}", commit]
        if subprocess.run(git, cwd=PROJECT_ROOT, check=False, stderr=subprocess.DEVNULL).returncode:
            raise ValueError(f"no commit {commit}")
        files = Path(folder) / "files"
        with tarfile.open(archive) as tar:
            tar.extractall(files, filter="data")
        yield files
