"""Throughput and latency of this checkout against those of an earlier commit, in one sitting.

Runs both with this interpreter, each from its own files, and gives the same texts to one and then to the other, in
rounds, so that what else the machine does meets both: served, and then in process.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark import job
from benchmark.server import Server
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import closed_loop
from gliner_bento.loadtest.machine import provenance
from gliner_bento.loadtest.workload import Body
from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.settings.names import env_name
from reliability.measurement import Measurement, Target
from reliability.served import serving

CONCURRENCIES = (1, 32)
WORSE_PERCENT = 3.0
_TEXTS = 256
_WARM_UP_ROUNDS = 2
_IN_PROCESS_ROUNDS = 4
TEXTS: dict[str, Callable[[int], list[Body]]] = {
    "short": workload.short,
    "mixed": workload.mixed,
    "long": workload.long,
}


def regression(
    log: Path, *, against: str, texts: Sequence[str], seconds: float, rounds: int, settings: Mapping[str, object]
) -> Measurement:
    """Measure both in `rounds` rounds of `seconds` at each concurrency. texts: names of TEXTS. Raises ValueError for an
    unknown commit."""
    at_start = provenance()
    bodies = {name: TEXTS[name](_TEXTS) for name in texts}
    with _files_of(against) as files:
        with (
            serving(log.with_suffix(".before"), settings, checkout=files) as before,
            serving(log, settings) as now,
        ):
            servers = {"before": before, "now": now}
            served = {
                name: [_measure(servers, bodies[name], number, seconds, rounds) for number in CONCURRENCIES]
                for name in texts
            }
        checkouts = {"before": files, "now": PROJECT_ROOT}
        in_process = {name: _in_process(checkouts, bodies[name], seconds, settings) for name in texts}
    facts = {
        "against": against,
        **{"seconds": seconds, "rounds": rounds, "settings": dict(settings)},
        "texts": {name: {"points": served[name], "in_process": in_process[name]} for name in texts},
    }
    arguments = f"--texts {','.join(texts)} --seconds {seconds:g} --rounds {rounds}"
    command = f"make regression AGAINST={against} ARGS='{arguments}'"
    targets = [target for name in texts for target in _targets(name, served[name], in_process[name])]
    notes = [note for name in texts for note in _notes(name, served[name], in_process[name])]
    return Measurement("regression", command, targets, facts, at_start, notes)


def _targets(texts: str, points: Sequence[Mapping[str, Any]], in_process: Mapping[str, Any]) -> Iterator[Target]:
    worse = in_process["throughput_worse_percent"]
    yield Target(f"{texts}: throughput in process, worse by", "%", worse, WORSE_PERCENT)
    for point in points:
        at = f"at concurrency {point['concurrency']}"
        yield Target(f"{texts}: throughput {at}, worse by", "%", point["throughput_worse_percent"], WORSE_PERCENT)
        yield Target(f"{texts}: p50 {at}, worse by", "%", point["p50_worse_percent"], WORSE_PERCENT)
        yield Target(f"{texts}: failed requests {at}", "requests", point["failed"]["now"], 0)


def worse_percent(before: list[float], now: list[float], *, more_is_better: bool) -> float:
    """How much worse `now` is, in percent of `before`: the median over the rounds; negative if it is better."""
    shares = [(b - n if more_is_better else n - b) / b for b, n in zip(before, now, strict=True)]
    return 100 * statistics.median(shares)


def _in_process(
    checkouts: Mapping[str, Path], bodies: list[Body], seconds: float, settings: Mapping[str, object]
) -> dict[str, Any]:
    """All texts are there from the start; each round is a process."""
    environment = {env_name(name): str(value) for name, value in settings.items()}
    texts_per_s: dict[str, list[float]] = {name: [] for name in checkouts}
    for number in range(_IN_PROCESS_ROUNDS):
        for name in sorted(checkouts, reverse=bool(number % 2)):
            load: dict[str, Any] = {"what": "throughput", "bodies": bodies, "seconds": seconds}
            run = job.run("ours", environment, checkouts[name], **load)
            texts_per_s[name].append(run["texts_per_s"])
    return {
        "texts_per_s": texts_per_s,
        "throughput_worse_percent": worse_percent(texts_per_s["before"], texts_per_s["now"], more_is_better=True),
    }


def _measure(
    servers: Mapping[str, Server], texts: list[Body], concurrency: int, seconds: float, rounds: int
) -> dict[str, Any]:
    bodies = workload.encoded(texts)
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


def _notes(texts: str, points: Sequence[Mapping[str, Any]], in_process: Mapping[str, Any]) -> Iterator[str]:
    for point in points:
        p50_ms = {name: statistics.median(values) for name, values in point["p50_ms"].items()}
        rates = f"{_rates(point)}, p50 {p50_ms['now']:.1f} ms (before {p50_ms['before']:.1f})"
        yield f"{texts}, concurrency {point['concurrency']}, medians: {rates}."
    yield f"{texts}, in process, medians: {_rates(in_process)}."


def _rates(point: Mapping[str, Any]) -> str:
    rates = {name: statistics.median(values) for name, values in point["texts_per_s"].items()}
    return f"{rates['now']:.1f} texts/s (before {rates['before']:.1f})"


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
