"""Sections over HTTP: gliner-bento against gliner.serve, and against gliner behind BentoML's own batching.

Each section measures both sides one after the other and returns its rows; it raises NotMeasured if it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmark import generated
from benchmark.bench import DEMO, Bench
from benchmark.job import NotMeasured
from benchmark.rows import Better, Row, note_if_missing
from gliner_bento.loadtest import workload

GATEWAYS = 1, 2, 4
"""Numbers of processes of the gateway that are compared."""
EXTRACT, BATCH, GLINER = "/v1/extract", "/v1/extract/batch", "/gliner"
BYTES_PER_MB = 2**20
_SIDES = ("ours", "gliner.serve")


def http(dtype: str, target: float, bench: Bench, section: str) -> list[Row]:
    """Requests/s, latencies and memory over HTTP against gliner.serve in the same precision."""
    model, most = bench.checkpoint("ner"), max(bench.plan.concurrencies)
    bodies = bench.bodies("ner", bench.plan.texts)
    about: dict[str, Any] = {"section": section, "dtype": dtype, "expected": bench.expected(model, bodies)}
    memory = bench.extra.setdefault("memory", {}).setdefault(dtype, {})

    def loops(name: str, url: str, route: str) -> dict[int, dict[str, Any]]:
        """The points of closed loops, after a warm-up."""
        bench.warm_up(url + route, bodies)
        return {
            n: bench.measure_load(name, url + route, bodies, concurrency=n, route=route, **about)
            for n in bench.plan.concurrencies
        }

    with bench.ours(model, dtype=dtype) as server:
        ours = loops("ours", server.url, EXTRACT)
        bench.measure_load("ours", server.url + GLINER, bodies, concurrency=most, route=GLINER, **about)
        rate = 0.7 * ours[most]["requests_per_s"]
        paced = bench.measure_load("ours", server.url + EXTRACT, bodies, rate=rate, route=EXTRACT, **about)
        memory["ours"] = server.resident_bytes()
    theirs: dict[int, dict[str, Any]] = {}
    missing = ""
    try:
        with bench.gliner_serve(model, dtype) as server:
            theirs = loops("gliner.serve", server.url, GLINER)
            memory["gliner.serve"] = server.resident_bytes()
    except NotMeasured as reason:
        missing = f"not measured: {reason}"
    rows = _closed_loop_rows(section, ours, theirs, missing, target, dtype)
    resident = [memory[side]["model_process"] / BYTES_PER_MB if side in memory else None for side in _SIDES]
    title, paced_title = "resident memory of the process with the model", f"p95, open loop, {rate:.1f} requests/s"
    note = (
        f"70 % of capacity, Poisson; p50 {paced['p50_ms']:.0f} ms, p99 {paced['p99_ms']:.0f} ms, unanswered "
        f"{paced['unanswered']}; latencies count from when a request was due"
    )
    return [
        *rows,
        Row(section, paced_title, "ms", paced["p95_ms"], note=note),
        Row(section, title, "MB", resident[0], resident[1], "gliner.serve", 1.0, "less", missing),
    ]


def _closed_loop_rows(
    section: str,
    ours: dict[int, dict[str, Any]],
    theirs: dict[int, dict[str, Any]],
    missing: str,
    target: float,
    dtype: str,
) -> list[Row]:
    """Rows of the closed loops. ours, theirs: points by concurrency."""

    def row(value: str, number: int, name: str, unit: str, target: float | None, better: Better) -> Row:
        baseline = theirs.get(number, {}).get(value)
        return Row(section, name, unit, ours[number][value], baseline, "gliner.serve", target, better, missing)

    least, most, per_s = min(ours), max(ours), "requests_per_s"
    rows = [
        row(per_s, n, f"throughput, concurrency {n}", "requests/s", target if n == most else None, "more") for n in ours
    ]
    for value, number, latency_target in (("p50_ms", least, 0.6), ("p95_ms", most, 0.3), ("p99_ms", most, None)):
        in_bf16 = latency_target if dtype == "bfloat16" else None
        rows.append(row(value, number, f"{value[:3]}, concurrency {number}", "ms", in_bf16, "less"))
    name = f"throughput, concurrency {most} over {least}"
    return [
        *rows,
        Row(section, name, "requests/s", ours[most][per_s], ours[least][per_s], f"ours, concurrency {least}", 1.3),
    ]


def naive(bench: Bench, section: str) -> list[Row]:
    """BentoML's own batching in place of our scheduler, and gliner in place of our engine."""
    if bench.plan.bundled:
        raise NotMeasured("the naive service passes no relations, which the bundled model requires")
    model, most = bench.checkpoint("ner"), max(bench.plan.concurrencies)
    bodies = bench.bodies("ner", bench.plan.texts)
    expected = bench.expected(model, bodies)
    wrapped = [{"items": [body]} for body in bodies]
    with bench.naive(model, "bfloat16") as server:
        bench.warm_up(server.url + "/extract", wrapped)
        theirs = bench.measure_load("naive batchable=True", server.url + "/extract", wrapped, concurrency=most,
                                    expected=expected, section=section, dtype="bfloat16")  # fmt: skip
    ours = bench.speed("ours", "bfloat16", most)
    return [Row(section, f"throughput, concurrency {most}, bf16", "requests/s", ours, theirs["requests_per_s"],
                "BentoML batchable=True, gliner", note=note_if_missing(ours, "run the section bf16 too"))]  # fmt: skip


def gateways(bench: Bench, section: str) -> list[Row]:
    """Requests/s of the bundled model, short texts, with one process of the gateway and with several."""
    bodies, concurrency = workload.short(bench.plan.texts), 2 * max(bench.plan.concurrencies)
    speeds = {}
    for number in GATEWAYS:
        with bench.ours(DEMO, gateways=number) as server:
            url = server.url + EXTRACT
            bench.warm_up(url, bodies, concurrency)
            point = bench.measure_load(
                f"ours, {number} gateways", url, bodies, concurrency=concurrency, section=section
            )
            speeds[number] = point["requests_per_s"]
    title = f"{{}} gateways, {concurrency} concurrent"
    return [
        Row(section, title.format(number), "requests/s", speeds[number], speeds[1], "ours, 1 gateway")
        for number in GATEWAYS[1:]
    ]


def relex(bench: Bench, section: str) -> list[Row]:
    """Entities and relations, bf16."""
    bodies = bench.bodies("relex", bench.plan.texts)
    return _against_gliner_serve(bench, section, "relex", bodies, max(bench.plan.concurrencies), "relations, bf16", 3.0)


def labels128(bench: Bench, section: str) -> list[Row]:
    """128 labels in the prompt of every text, bf16; in one pass, as in gliner.serve."""
    bodies = workload.many_labels(bench.plan.texts // 4)
    if bench.plan.bundled:
        bodies = generated.with_relations(bodies)
    return _against_gliner_serve(bench, section, "ner", bodies, 8, "128 labels, bf16", None, max_labels_per_pass=1000)


def _against_gliner_serve(
    bench: Bench, section: str, family: str, bodies: Sequence[workload.Body], number: int, name: str,
    target: float | None, **settings: Any,
) -> list[Row]:  # fmt: skip
    """The same load on both servers in bf16, ours with these settings; long texts are truncated, as gliner does."""
    model, dtype = bench.checkpoint(family), "bfloat16"
    about: dict[str, Any] = {"section": section, "dtype": dtype, "concurrency": number}
    expected = bench.expected(model, bodies)
    truncated = [body | {"long_text": "truncate"} for body in bodies]
    with bench.ours(model, dtype=dtype, **settings) as server:
        bench.warm_up(server.url + EXTRACT, truncated, number)
        ours = bench.measure_load("ours", server.url + EXTRACT, truncated, expected=expected, **about)
    theirs: dict[str, Any] = {}
    notes = [f"{setting}={value}" for setting, value in settings.items()]
    try:
        with bench.gliner_serve(model, dtype) as server:
            bench.warm_up(server.url + GLINER, bodies, number)
            theirs = bench.measure_load("gliner.serve", server.url + GLINER, bodies, expected=expected, **about)
    except NotMeasured as reason:
        notes.append(f"not measured: {reason}")
    note = "; ".join(notes)

    def row(value: str, title: str, unit: str, **options: Any) -> Row:
        return Row(section, title, unit, ours[value], theirs.get(value), "gliner.serve", note=note, **options)

    return [
        row("requests_per_s", f"{name}, concurrency {number}", "requests/s", target=target),
        row("p50_ms", f"{name}, p50, concurrency {number}", "ms", better="less"),
    ]
