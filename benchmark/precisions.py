"""The section int8: what each precision of a CPU gives, in turns on one machine, and what it costs in answers."""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmark import job
from benchmark.answers import Predictions, agreement_of, predictions_of
from benchmark.bench import DEMO, Bench, log_progress
from benchmark.generated import with_relations
from benchmark.job import NotMeasured
from benchmark.labelled import Span, f1, sentences
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import closed_loop

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "quantization": "int8"},
}
BUNDLED = "bundled model"
_ROUNDS = 3
_SPEED_TARGETS = {"bfloat16": 1.3, "float32": 2.2}
_ENTITIES_TARGET, _RELATIONS_TARGET = 0.985, 0.97
_ONNX_TARGETS = {"float32": 1.8, "int8": 2.0}


def int8(bench: Bench, section: str) -> list[Row]:
    """Texts/s, load time and memory in each precision, entities and relations against float32's own, and texts/s of
    gliner on ONNX Runtime in the same precision."""
    bodies, gold = sentences(24 if bench.plan.bundled else 400)
    runs = _in_turns(bench, DEMO, with_relations(bodies))
    rows = _rows(section, BUNDLED, runs) + _quality_rows(section, runs, gold)
    for family, name in {} if bench.plan.bundled else {"ner": "small", "base": "base"}.items():
        bodies = bench.bodies(family, bench.plan.in_process_texts)
        runs = _in_turns(bench, bench.checkpoint(family), bodies)
        rows += _rows(section, name, runs)
        if family == "ner":
            rows += _onnx_rows(bench, section, runs, bodies) + _served_rows(bench, section)
    return rows


def _rows(section: str, model: str, runs: Runs) -> list[Row]:
    return _speed_rows(section, model, runs) + _answer_rows(section, model, runs)


Runs = dict[str, list[dict[str, Any]]]
"""Of each precision, the results of `jobs/ours.py` in each round."""


def _in_turns(bench: Bench, model: Any, bodies: Sequence[Any]) -> Runs:
    """Each round measures all precisions, every second one in the other order."""
    runs: Runs = defaultdict(list)
    for number in range(1 if bench.plan.bundled else _ROUNDS):
        for name in sorted(SETTINGS, reverse=bool(number % 2)):
            try:
                run = bench.ours_in_process(
                    model, SETTINGS[name], what="throughput", bodies=bodies, seconds=bench.plan.in_process_s
                )
            except NotMeasured as reason:
                log_progress(f"  {name}: {reason}")
                continue
            runs[name].append(run)
    for name in ("float32", "int8"):
        if not runs[name]:
            raise NotMeasured(f"{name} does not run here")
    return runs


def _speed_rows(section: str, model: str, runs: Runs) -> list[Row]:
    rows = []
    for other, target in _SPEED_TARGETS.items():
        if runs[other]:
            ours, theirs = _median(runs["int8"], "texts_per_s"), _median(runs[other], "texts_per_s")
            rows.append(Row(section, f"{model}, int8", "texts/s", ours, theirs, other, target))
    load_s, exact_s = _median(runs["int8"], "load_s"), _median(runs["float32"], "load_s")
    note = f"{load_s - exact_s:.1f} s more; at most 10"
    rows.append(Row(section, f"{model}, int8: loaded in", "s", load_s, exact_s, "float32", better="less", note=note))
    peak, exact_peak = (_median(runs[name], "peak_bytes") / 2**20 for name in ("int8", "float32"))
    rows.append(Row(section, f"{model}, int8: most memory", "MiB", peak, exact_peak, "float32", 1.0, "less"))
    return rows


def _answer_rows(section: str, model: str, runs: Runs) -> list[Row]:
    """F1 against the answers of float32."""
    exact = runs["float32"][0]["answers"]
    rows = []
    for precision in ("bfloat16", "int8"):
        if not runs[precision]:
            continue
        answers = runs[precision][0]["answers"]
        for part, target in (("entities", _ENTITIES_TARGET), ("relations", _RELATIONS_TARGET)):
            expected = [_only(part, answer) for answer in exact]
            if not any(expected):
                continue
            agreement = agreement_of([{"entities": [], "relations": [], part: one[part]} for one in answers], expected)
            goal = target if precision == "int8" else None
            note = f"{agreement['expected_per_text']:.1f} in a text"
            rows.append(Row(section, f"{model}, {precision}: {part}", "F1", agreement["f1"], 1.0, "float32", goal,
                            note=note))  # fmt: skip
    return rows


def _only(part: str, answer: Mapping[str, Any]) -> Predictions:
    return predictions_of({"entities": [], "relations": [], part: answer[part]})


def _served_rows(bench: Bench, section: str) -> list[Row]:
    """Requests/s with the most clients of the plan: a server in each precision, in turns."""
    clients, bodies = max(bench.plan.concurrencies), workload.encoded(bench.bodies("ner", bench.plan.texts))
    model, speeds = bench.checkpoint("ner"), defaultdict[str, list[float]](list)
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(bench.ours(model, **settings)) for name, settings in SETTINGS.items()}
        for seconds in [bench.plan.warm_up_s] * 2 + [bench.plan.seconds] * _ROUNDS:
            for name, server in servers.items():
                run = closed_loop(f"{server.url}{EXTRACT}", bodies, concurrency=clients, seconds=seconds)
                speeds[name].append(run.summary()["requests_per_s"])
    medians = {name: statistics.median(values[2:]) for name, values in speeds.items()}
    return [
        Row(section, f"small, int8, served, {clients} concurrent", "requests/s", medians["int8"], medians[other], other,
            target) for other, target in _SPEED_TARGETS.items()
    ]  # fmt: skip


def _onnx_rows(bench: Bench, section: str, runs: Runs, bodies: Sequence[Any]) -> list[Row]:
    """gliner on ONNX Runtime: as exported, and with onnxruntime's dynamic quantization."""
    rows = []
    for precision, folder in {"float32": bench.exported, "int8": bench.exported_int8}.items():
        ours, speed = _median(runs[precision], "texts_per_s"), None
        try:
            inputs: dict[str, Any] = {"bodies": bodies, "batch_sizes": [8, 1], "seconds": bench.plan.in_process_s}
            theirs = job.run("gliner_own", model=folder(), runtime="onnx", **inputs)
            speed = theirs["best"]
            exact = [predictions_of(answer) for answer in runs["float32"][0]["answers"]]
            note = f"its F1 against float32: {agreement_of(theirs['answers'], exact)['f1']:.4f}"
        except NotMeasured as reason:
            note = f"not measured: {reason}"
        target = _ONNX_TARGETS[precision]
        rows.append(Row(section, f"small, {precision}", "texts/s", ours, speed, f"gliner on ONNX Runtime, {precision}",
                        target, note=note))  # fmt: skip
    return rows


def _quality_rows(section: str, runs: Runs, gold: Sequence[set[Span]]) -> list[Row]:
    """F1 on sentences with known entities."""
    exact = f1(runs["float32"][0]["answers"], gold)
    return [
        Row(section, f"{BUNDLED}, {name}: known entities", "F1", f1(runs[name][0]["answers"], gold), exact, "float32")
        for name in ("bfloat16", "int8")
        if runs[name]
    ]


def _median(runs: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(statistics.median(run[key] for run in runs))
