"""Sections without a server: our engine, gliner, and other runtimes of its models, each in a process of its own.

Each section measures both sides one after the other and returns its rows; it raises NotMeasured if it cannot.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmark import job
from benchmark.answers import agreement_of, predictions_of
from benchmark.bench import Bench, log_progress
from benchmark.job import NotMeasured
from benchmark.rows import Row, note_if_missing
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.measure import BUILD


def in_process(bench: Bench, section: str) -> list[Row]:
    """Texts/s without a server, fp32: all texts are there from the start, sorted as suits each baseline best."""
    model, plan = bench.checkpoint("ner"), bench.plan
    bodies = bench.bodies("ner", plan.in_process_texts)
    expected = bench.expected(model, bench.bodies("ner", plan.texts))[: len(bodies)]  # cached for these texts
    load: dict[str, Any] = {"what": "throughput", "bodies": bodies, "seconds": plan.in_process_s}
    ours = bench.ours_in_process(model, {"dtype": "float32"}, **load)
    bench.extra["in_process"] = {
        "ours": {"texts_per_s": ours["texts_per_s"]} | {"agreement": agreement_of(ours["answers"], expected)}
    }
    inputs: dict[str, Any] = {"bodies": bodies, "batch_sizes": [8, 4, 1], "seconds": plan.in_process_s}
    environment = (BUILD / "fast-gliner-venv").absolute()
    baselines: dict[str, Callable[[], dict[str, Any]]] = {
        "gliner on torch": lambda: job.run("gliner_own", model=model, **inputs),
        "gliner on ONNX Runtime": lambda: job.run("gliner_own", model=bench.exported(), runtime="onnx", **inputs),
        "fast-gliner": lambda: job.run_in_environment(
            "fast_gliner", environment, [job.FAST_GLINER], model=bench.exported(), **inputs
        ),
    }
    rows = []
    for name, measure in baselines.items():
        speed, note = None, ""
        try:
            theirs = measure()
            speed = theirs["best"]
            agreement = agreement_of(theirs["answers"], expected)
            bench.extra["in_process"][name] = {"texts_per_s": theirs["texts_per_s"], "agreement": agreement}
            note = _batch_sizes(theirs)
        except NotMeasured as reason:
            note = f"not measured: {reason}"
        log_progress(f"  {name}: {note}")
        rows.append(Row(section, "in process, fp32", "texts/s", ours["texts_per_s"], speed, name, 1.5, note=note))
    return rows


def served(bench: Bench, section: str) -> list[Row]:
    """The cost of HTTP, gateway and runner client: requests/s over texts/s of the same engine under the same load."""
    model, least, most = bench.checkpoint("ner"), min(bench.plan.concurrencies), max(bench.plan.concurrencies)
    bodies = bench.bodies("ner", bench.plan.texts)
    rows = []
    for number in (least, most):
        inside = bench.ours_in_process(model, {"dtype": "bfloat16"}, what="throughput", bodies=bodies,
                                       seconds=bench.plan.in_process_s, concurrency=number)["texts_per_s"]  # fmt: skip
        over_http = bench.speed("ours", "bfloat16", number)
        bench.extra.setdefault("served", {})[str(number)] = {"http": over_http, "in_process": inside}
        target = 0.9 if number == most else None
        note = note_if_missing(over_http, "run the section bf16 too")
        if over_http and number == least:
            note = f"{1000 / over_http - 1000 / inside:.1f} ms of a request are outside of the engine"
        rows.append(Row(section, f"served over in process, bf16, concurrency {number}", "requests/s", over_http, inside,
                        "our engine in process", target, note=note))  # fmt: skip
    return rows


def labels1000(bench: Bench, section: str) -> list[Row]:
    """1,000 labels on a bi-encoder, in process, fp32: repeated requests with the same labels, one text each."""
    model = bench.checkpoint("bi")
    [body] = workload.many_labels(1, labels=1000)
    ours = bench.ours_in_process(model, {"dtype": "float32"}, what="repeated", body=body, times=8)
    theirs = job.run("gliner_own", model=model, bodies=[body] * 4, batch_sizes=[1], seconds=0.0)
    expected = [predictions_of(theirs["answers"][0])]
    bench.extra["labels1000"] = {"ours_s": ours["seconds"], "gliner_s": theirs["latencies_s"]}
    bench.extra["labels1000"]["agreement"] = agreement_of(ours["answers"], expected)
    first_ms, later_ms = ours["seconds"][0] * 1000, statistics.median(ours["seconds"][1:]) * 1000
    gliner_ms = statistics.median(theirs["latencies_s"]) * 1000
    notes = [f"labels encoded: {count}" for count in (ours["encoded_labels"][0], max(ours["encoded_labels"][1:]))]
    return [
        Row(section, "bi-encoder, 1,000 labels, first request", "ms", first_ms, gliner_ms, "gliner in process",
            better="less", note=notes[0]),
        Row(section, "bi-encoder, 1,000 labels, repeated request", "ms", later_ms, gliner_ms, "gliner in process",
            better="less", note=notes[1]),
        Row(section, "bi-encoder, repeated request over first", "ms", later_ms, first_ms, "ours, first request",
            better="less", note="well below 1 if label embeddings are cached"),
    ]  # fmt: skip


def _batch_sizes(result: dict[str, Any]) -> str:
    speeds = ", ".join(f"{size}: {speed:.1f}" for size, speed in result["texts_per_s"].items())
    return f"texts/s by batch size: {speeds}"
