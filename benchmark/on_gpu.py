"""The section `gpu`: our engine and server on a CUDA device against gliner and gliner.serve on the same one.

Runs unattended, within 10 minutes with `--seconds 4` on an H100: the most asked for first. Each measurement is a job or
a server of its own, so one that fails costs only its rows, and rows are stored as soon as they are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmark import generated, job, results_file, with_adapters
from benchmark.answers import agreement_of, predictions_of
from benchmark.bench import Bench, log_progress
from benchmark.job import NotMeasured
from benchmark.over_http import EXTRACT, GLINER
from benchmark.rows import Row
from gliner_bento.loadtest import workload

FAMILIES = {"ner": "small", "base": "base", "large": "large", "modernbert": "ModernBERT-base"}
TEXTS = 2048
EXACT_TEXTS = 200
IN_PROGRESS = (1, 64, 512)
GLINER_BATCHES = [128, 64, 32, 8]
LONG_WORDS = 320
LARGE_TEXTS = 512
SCARCE_TEXTS = 400
FREE_GIB = [0.3, 0.1, 0.05]
SERVED_GATEWAYS = 1, 4
WARM_UP_S = 6.0
TARGETS = {"small": 4000.0, "large": 2000.0, "base, 320 words": 3 * 62_000 / LONG_WORDS}
"""Texts/s. The third is three times the words of a published run with TensorRT on an A100, 194 texts/s of 320 words."""
SERVED_TARGET, P50_TARGET_MS, ADAPTERS_TARGET = 1300.0, 6.0, 0.8

Part = Callable[[Bench, str], Iterator[Row]]


def gpu(bench: Bench, section: str) -> list[Row]:
    """All measurements on a GPU. Raises NotMeasured where there is none."""
    bench.extra["gpu"] = {"device": job.run("ours", what="device")}
    parts: list[Part] = [
        _exact,
        partial(_speed, "ner"),
        partial(_long, "base"),
        _served,
        partial(_speed, "large"),
        _adapters,
        _out_of_memory,
        partial(_speed, "base"),
        partial(_long, "ner"),
        partial(_speed, "modernbert"),
    ]
    rows: list[Row] = []
    for part in parts:
        try:
            for row in part(bench, section):
                log_progress(f"  {row.name}: {row.ours} {row.unit}, {row.peer} {row.theirs}")
                rows.append(row)
        except NotMeasured as reason:
            rows.append(Row(section, getattr(part, "__name__", str(part)), "", None, note=f"not measured: {reason}"))
            log_progress(f"  not measured: {reason}")
        kept = {"rows": [asdict(row) for row in rows], "loads": bench.points, **bench.extra["gpu"]}
        results_file.write(bench.folder / "gpu.json", kept)
    return rows


def _exact(bench: Bench, section: str) -> Iterator[Row]:
    """Texts whose predictions in float32 are gliner's own, on the same device, one text per batch."""
    model, bodies = bench.checkpoint("ner"), bench.bodies("ner", EXACT_TEXTS)
    [ours] = _ours(bench, "ner", bodies, (64,), dtype="float32")
    theirs = _gliner(bench, "ner", bodies, [1], dtype="float32")
    agreement = agreement_of(ours["answers"], [predictions_of(answer) for answer in theirs["answers"]])
    bench.extra["gpu"]["exact"] = agreement
    right = float(agreement["answers"] - agreement["wrong"])
    note = f"largest score difference {agreement['worst_score_difference']:.1e}; {model.name}"
    yield Row(section, "right answers, small, fp32", "texts", right, float(len(bodies)), "gliner", 1.0, note=note)


def _speed(family: str, bench: Bench, section: str) -> Iterator[Row]:
    """Mixed texts in process, bf16: ours under concurrency, gliner's best over sorted batches."""
    bodies = bench.bodies(family, TEXTS if family == "ner" else LARGE_TEXTS)
    yield from _compared(bench, section, family, FAMILIES[family], bodies)


def _long(family: str, bench: Bench, section: str) -> Iterator[Row]:
    """Texts of 320 words, bf16."""
    bodies = [
        body | {"text": generated.document(LONG_WORDS, seed)["text"]}
        for seed, body in enumerate(bench.bodies(family, LARGE_TEXTS))
    ]
    yield from _compared(bench, section, family, f"{FAMILIES[family]}, {LONG_WORDS} words", bodies)


def _compared(bench: Bench, section: str, family: str, name: str, bodies: Sequence[workload.Body]) -> Iterator[Row]:
    target_per_s = TARGETS.get(name)
    ours = _ours(bench, family, bodies, IN_PROGRESS, dtype="bfloat16")
    theirs = _gliner(bench, family, bodies, GLINER_BATCHES, dtype="bfloat16", alone=60)
    bench.extra["gpu"][name] = {"ours": [_without_answers(load) for load in ours], "gliner": _without_answers(theirs)}
    sorted_note = ", ".join(f"{size}: {per_s:.0f}" for size, per_s in theirs["texts_per_s"].items())
    for load in ours[1:]:
        note = (
            f"p99 {load['p99_ms']:.0f} ms, GPU busy {load['busy']:.0%}, peak {load['peak_bytes'] / 2**30:.2f} GiB; "
            f"gliner by batch size: {sorted_note}"
        )
        if target_per_s:
            note = f"goal {target_per_s:.0f}; {note}"
        title = f"{name}, bf16, {load['concurrency']} in progress"
        yield Row(section, title, "texts/s", load["texts_per_s"], theirs["best"], "gliner, best batch size", 1.0,
                  note=note)  # fmt: skip
    alone = sorted(theirs["latencies_s"])
    yield Row(section, f"{name}, bf16, p50 at 1", "ms", ours[0]["p50_ms"], alone[len(alone) // 2] * 1000, "gliner",
              1.0, "less", f"goal {P50_TARGET_MS:g} ms" if name == "small" else "")  # fmt: skip


def _served(bench: Bench, section: str) -> Iterator[Row]:
    """Requests/s over HTTP, bf16, against gliner.serve, and with several gateway processes."""
    model, bodies = bench.checkpoint("ner"), bench.bodies("ner", TEXTS)
    seconds = bench.plan.seconds
    speeds: dict[tuple[str, int], float] = {}

    def measure(name: str, url: str) -> None:
        for number in (64, 256):
            bench.warm_up(url, bodies, number, WARM_UP_S)
        for number in (64, 256):
            point = bench.measure_load(name, url, bodies, concurrency=number, section=section, dtype="bfloat16",
                                       seconds=seconds)  # fmt: skip
            speeds[name, number] = point["requests_per_s"]

    for number in SERVED_GATEWAYS:
        with bench.ours(model, gateways=number, dtype="bfloat16", device="cuda") as server:
            measure(f"ours, {number} gateway{'s' * (number > 1)}", server.url + EXTRACT)
    note = ""
    try:
        with bench.gliner_serve(model, "bfloat16", device="cuda") as server:
            measure("gliner.serve", server.url + GLINER)
    except NotMeasured as reason:
        note = f"gliner.serve not measured: {reason}"
    for (name, number), per_s in speeds.items():
        if name != "gliner.serve":
            theirs = speeds.get(("gliner.serve", number))
            goal = f"goal {SERVED_TARGET:.0f}; " if number == 256 else ""
            yield Row(section, f"HTTP, small, bf16, {name}, {number} concurrent", "requests/s", per_s, theirs,
                      "gliner.serve", 6.0 if number == 256 else None, note=goal + note)  # fmt: skip


def _adapters(bench: Bench, section: str) -> Iterator[Row]:
    """Texts/s with adapters in turn over texts/s without, in process, bf16."""
    few, many, _ = bench.plan.adapters
    for slots in (few, many):
        with with_adapters.settings_for(bench, "bfloat16", slots) as settings:
            texts = bench.bodies("ner", TEXTS // 2)
            kinds = {"none": texts, "adapters": with_adapters.in_turn(texts, slots)}
            speeds = {kind: _ours(bench, "ner", bodies, (64,), **settings)[0] for kind, bodies in kinds.items()}
        with_them, without = (speeds[kind]["texts_per_s"] for kind in ("adapters", "none"))
        target = ADAPTERS_TARGET if slots == few else None
        yield Row(section, f"small, bf16, {slots} adapters in turn, 64 in progress", "texts/s", with_them, without,
                  "no adapter", target)  # fmt: skip


def _out_of_memory(bench: Bench, section: str) -> Iterator[Row]:
    """Texts answered rightly or refused while the device has little memory, and all of them afterwards, fp32."""
    limits: Any = bench.ours_in_process(
        bench.checkpoint("ner"), {"device": "cuda", "dtype": "float32"}, what="out_of_memory",
        bodies=bench.bodies("ner", SCARCE_TEXTS), free_gib=FREE_GIB,
    )["limits"]  # fmt: skip
    bench.extra["gpu"]["out_of_memory"] = limits
    for limit in limits:
        free = "all memory again" if limit["free_gib"] is None else f"{limit['free_gib']:g} GiB beyond the weights"
        note = f"{limit['answered']} answered, {limit['wrong']} of them wrong, others {limit['refused'] or 'none'}"
        right = float(limit["answered"] - limit["wrong"])
        yield Row(section, f"right answers, small, fp32, {free}", "texts", right, float(limit["answered"]), "answered",
                  1.0, note=note)  # fmt: skip


def _ours(
    bench: Bench, family: str, bodies: Sequence[workload.Body], numbers: Sequence[int], **settings: Any
) -> list[dict[str, Any]]:
    loads: Any = bench.ours_in_process(
        bench.checkpoint(family), {"device": "cuda", **settings}, what="loads", bodies=list(bodies),
        concurrencies=list(numbers), seconds=bench.plan.seconds / 2,
    )["loads"]  # fmt: skip
    return list(loads)


def _gliner(
    bench: Bench, family: str, bodies: Sequence[workload.Body], sizes: Sequence[int], **options: Any
) -> dict[str, Any]:
    return job.run("gliner_own", model=bench.checkpoint(family), bodies=list(bodies), device="cuda",
                   batch_sizes=list(sizes), seconds=0.0, **options)  # fmt: skip


def _without_answers(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in {"answers", "latencies_s"}}
