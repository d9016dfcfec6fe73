"""Sections of the report without a server: our engine, gliner and other runtimes of its models, each in a process.

Each measures both sides one after the other and returns its rows; it raises NotMeasured where it cannot.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

from gliner_bento.benchmark import job, workload
from gliner_bento.benchmark.answers import agreement_of, found
from gliner_bento.benchmark.bench import BUILD, DEMO, Bench, tell
from gliner_bento.benchmark.job import NotMeasured
from gliner_bento.benchmark.labelled import f1, sentences
from gliner_bento.benchmark.roofline import texts_per_s
from gliner_bento.benchmark.rows import Row, unless


def in_process(bench: Bench, section: str) -> list[Row]:
    """Texts/s without a server, fp32: all texts are there from the start, sorted as each peer likes best."""
    model, plan = bench.checkpoint("ner"), bench.plan
    bodies = bench.bodies("ner", plan.in_process_texts)
    expected = bench.expected(model, bench.bodies("ner", plan.texts))[: len(bodies)]  # the same texts, and more
    ours = bench.ours_in_process(model, {"dtype": "float32"}, what="throughput", bodies=bodies,
                                 seconds=plan.in_process_s)  # fmt: skip
    bench.extra["in_process"] = {
        "ours": {"texts_per_s": ours["texts_per_s"]} | {"agreement": agreement_of(ours["answers"], expected)}
    }
    asked: dict[str, Any] = {"bodies": bodies, "batch_sizes": [8, 4, 1], "seconds": plan.in_process_s}
    peers: dict[str, Callable[[], dict[str, Any]]] = {
        "gliner on torch": lambda: job.run("gliner_own", model=str(model.resolve()), **asked),
        "gliner on ONNX Runtime": lambda: job.run(
            "gliner_own", model=str(bench.exported().resolve()), runtime="onnx", **asked
        ),
        "fast-gliner": lambda: job.run_elsewhere(
            "fast_gliner", (BUILD / "fast-gliner-venv").resolve(), job.FAST_GLINER,
            model=str(bench.exported().resolve()), **asked
        ),
    }  # fmt: skip
    rows = []
    for name, measured in peers.items():
        speed, note = None, ""
        try:
            theirs = measured()
            speed = theirs["best"]
            compared = agreement_of(theirs["answers"], expected)
            bench.extra["in_process"][name] = {"texts_per_s": theirs["texts_per_s"], "agreement": compared}
            note = "at batch size " + ", ".join(f"{size}: {fast:.1f}" for size, fast in theirs["texts_per_s"].items())
        except NotMeasured as reason:
            note = f"not measured: {reason}"
        tell(f"  {name}: {note}")
        rows.append(Row(section, "in process, fp32", "texts/s", ours["texts_per_s"], speed, name, 1.5, note=note))
    return rows


def served(bench: Bench, section: str) -> list[Row]:
    """What HTTP, the gateway and the hop cost: requests/s over texts/s of the same engine under the same load."""
    model, least, most = bench.checkpoint("ner"), min(bench.plan.concurrencies), max(bench.plan.concurrencies)
    bodies = bench.bodies("ner", bench.plan.texts)
    rows = []
    for number in (least, most):
        inside = bench.ours_in_process(model, {"dtype": "bfloat16"}, what="throughput", bodies=bodies,
                                       seconds=bench.plan.in_process_s, at_once=number)["texts_per_s"]  # fmt: skip
        over_http = bench.speed("ours", "bfloat16", number)
        bench.extra.setdefault("served", {})[str(number)] = {"http": over_http, "in_process": inside}
        goal = 0.9 if number == most else None
        note = unless(over_http, "run the section bf16 too")
        if over_http and number == least:
            note = f"{1000 / over_http - 1000 / inside:.1f} ms of a request are not the engine's"
        rows.append(Row(section, f"served over in process, bf16, {number} at once", "requests/s", over_http, inside,
                        "our engine in process", goal, note=note))  # fmt: skip
    return rows


def labels1000(bench: Bench, section: str) -> list[Row]:
    """1,000 labels on a bi-encoder, in process, fp32: the same labels again and again, one text at a time."""
    model = bench.checkpoint("bi")
    [body] = workload.many_labels(1, labels=1000)
    ours = bench.ours_in_process(model, {"dtype": "float32"}, what="repeated", body=body, times=8)
    theirs = job.run("gliner_own", model=str(model.resolve()), bodies=[body] * 4, batch_sizes=[1], seconds=0.0)
    expected = [found(theirs["answers"][0])]
    bench.extra["labels1000"] = {"ours_s": ours["seconds"], "gliner_s": theirs["latencies_s"]}
    bench.extra["labels1000"]["agreement"] = agreement_of(ours["answers"], expected)
    first, later = ours["seconds"][0] * 1000, statistics.median(ours["seconds"][1:]) * 1000
    peer = statistics.median(theirs["latencies_s"]) * 1000
    told = [f"labels encoded: {count}" for count in (ours["encoded_labels"][0], max(ours["encoded_labels"][1:]))]
    return [
        Row(section, "bi-encoder, 1,000 labels, first request", "ms", first, peer, "gliner in process", better="less",
            note=told[0]),
        Row(section, "bi-encoder, 1,000 labels, the same again", "ms", later, peer, "gliner in process", better="less",
            note=told[1]),
        Row(section, "bi-encoder, second request over first", "ms", later, first, "ours, first", better="less",
            note="well below 1 where label embeddings are kept"),
    ]  # fmt: skip


def int8(bench: Bench, section: str) -> list[Row]:
    """What quantization costs on the bundled model: F1 on sentences with known entities, and against float32."""
    bodies, wanted = sentences(DEMO, 24 if bench.plan.bundled else 400)
    answers: dict[str, Any] = {}
    for name, changed in {"float32": {}, "bfloat16": {"dtype": "bfloat16"}, "int8": {"quantization": "int8"}}.items():
        try:
            answers[name] = bench.ours_in_process(DEMO, {"dtype": "float32", **changed}, what="throughput",
                                                  bodies=bodies, seconds=bench.plan.in_process_s / 2)  # fmt: skip
        except NotMeasured as reason:
            answers[name] = {"missing": str(reason)}
    if "missing" in answers["float32"]:
        raise NotMeasured(answers["float32"]["missing"])
    exact, rows = answers.pop("float32"), []
    expected = [found(answer) for answer in exact["answers"]]
    before = f1(exact["answers"], wanted)
    for name, told in answers.items():
        after = f1(told["answers"], wanted) if "answers" in told else None
        note = f"not measured: {told['missing']}" if after is None else (
            f"F1 loss {before - after:+.4f}; F1 against float32's own answers "
            f"{agreement_of(told['answers'], expected)['f1']:.4f}")  # fmt: skip
        rows.append(Row(section, f"bundled model in {name}", "F1", after, before, "float32", note=note))
        rows.append(Row(section, f"bundled model in {name}", "texts/s", told.get("texts_per_s"),
                        exact["texts_per_s"], "float32"))  # fmt: skip
    return rows


def stages(bench: Bench, section: str) -> list[Row]:
    """Where the time goes, in one thread."""
    model = bench.checkpoint("ner")
    bodies = bench.bodies("ner", bench.plan.in_process_texts)
    rows = []
    for dtype in ("float32", "bfloat16"):
        spent = bench.ours_in_process(model, {"dtype": dtype}, what="stages", bodies=bodies,
                                      seconds=bench.plan.in_process_s)  # fmt: skip
        bench.extra.setdefault("stages", {})[dtype] = spent
        total = sum(spent.values())
        told = ", ".join(f"{name} {seconds / total:.1%}" for name, seconds in spent.items())
        rows.append(Row(section, f"one text, one thread, {dtype}", "ms", total * 1000, note=told))
    return rows


def roofline(bench: Bench, section: str) -> list[Row]:
    """Our speed as a share of what the encoder's arithmetic alone would allow on this machine."""
    model, most = bench.checkpoint("ner"), max(bench.plan.concurrencies)
    config = json.loads((model / "gliner_config.json").read_text("utf-8"))["encoder_config"]
    bodies = bench.bodies("ner", bench.plan.texts)
    tokens = bench.ours_in_process(model, {"dtype": "float32"}, what="lengths", bodies=bodies)["tokens"]
    rows = []
    for dtype in ("float32", "bfloat16"):
        peak = job.run("gemm", dtype=dtype, threads=2, rows=1024, inner=config["hidden_size"],
                       outer=config["intermediate_size"], seconds=min(3.0, bench.plan.in_process_s))  # fmt: skip
        limit = texts_per_s(config, tokens, peak["flop_per_s"])
        speed = bench.speed("ours", dtype, most)
        bench.extra.setdefault("roofline", {})[dtype] = {
            "flop_per_s": peak["flop_per_s"], "texts_per_s": limit, "ours": speed,
            "gliner.serve": bench.speed("gliner.serve", dtype, most), "mean_tokens": statistics.mean(tokens),
        }  # fmt: skip
        note = f"dense product {peak['flop_per_s'] / 1e9:.0f} GFLOP/s, {statistics.mean(tokens):.0f} tokens a text"
        rows.append(Row(section, f"share of the roofline, {dtype}", "requests/s", speed, limit,
                        "the encoder's arithmetic alone", note=note))  # fmt: skip
    return rows
