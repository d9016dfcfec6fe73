"""The section `models`: one model in the table of models against the same one without a name; then two that share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from benchmark.bench import Bench
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from gliner_bento.loadtest import workload

DTYPE = "bfloat16"
RATE = 4.0
ROUNDS = 6
NOISE = 0.97
FAIR = 0.9


def models(bench: Bench, section: str) -> list[Row]:
    """Throughput of one model with and without a name, in turns; each of two under full load; short texts of one beside
    the other under full load."""
    model, most = bench.checkpoint("ner"), max(bench.plan.concurrencies)
    bodies = bench.bodies("ner", bench.plan.texts)
    about: dict[str, Any] = {"section": section, "dtype": DTYPE}
    full: dict[str, Any] = {"expected": bench.expected(model, bodies), "concurrency": most, **about}
    with bench.ours(model, dtype=DTYPE) as server, bench.ours({"a": model}, dtype=DTYPE) as other:
        servers = {"ours, one model": server.url, "ours, one model with a name": other.url}
        for url in servers.values():
            bench.warm_up(url + EXTRACT, bodies)
        rounds = [
            bench.measure_load(name, url + EXTRACT, bodies, seconds=bench.plan.seconds / 2, **full)["requests_per_s"]
            for _ in range(ROUNDS)
            for name, url in servers.items()
        ]
        one, named = median(rounds[::2]), median(rounds[1::2])
    with bench.ours({"a": model, "b": model}, dtype=DTYPE) as server, ThreadPoolExecutor(2) as pool:
        urls = {name: f"{server.url}/models/{name}{EXTRACT}" for name in ("a", "b")}
        short = workload.short(bench.plan.texts)
        for url in urls.values():
            bench.warm_up(url, bodies)
        alone = bench.measure_load("ours, model b", urls["b"], short, rate=RATE, **about)
        loads = [
            pool.submit(bench.measure_load, f"ours, model {name}", url, bodies, **full) for name, url in urls.items()
        ]
        a, b = (load.result()["requests_per_s"] for load in loads)
        load = pool.submit(bench.measure_load, "ours, model a", urls["a"], bodies, **full)
        beside = bench.measure_load("ours, model b", urls["b"], short, rate=RATE, **about)
        load.result()
    return [
        Row(section, f"throughput of a model with a name, concurrency {most}", "requests/s",
            named, one, "ours, one model", NOISE, note=f"medians of {ROUNDS} rounds, in turns"),
        Row(section, f"the slower of two models, concurrency {most} each", "requests/s", min(a, b), max(a, b),
            "the faster", FAIR),
        Row(section, f"two models together, concurrency {most} each", "requests/s", a + b, one, "ours, one model"),
        Row(section, f"p95 of short texts of a model beside {most} clients of the other", "ms", beside["p95_ms"],
            alone["p95_ms"], "alone", better="less"),
    ]  # fmt: skip
