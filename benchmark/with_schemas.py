"""The sections `gliner2` and `gliclass`: models with random weights, fp32, ours against their own packages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmark import job
from benchmark.answers import agreement_of, predictions_of
from benchmark.bench import Bench
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from benchmark.server import Server
from gliner_bento.loadtest.workload import Body

_RELATIONS = ["works for", "located in"]
_CLASSES = {"topic": ["business", "politics", "science", "sports"], "tone": ["positive", "neutral", "negative"]}
_RECORD = {"event": {"who": "list", "where": "string", "when": "string"}}
TASKS: dict[str, dict[str, Any]] = {
    "entities": {},
    "four tasks": {"relations": _RELATIONS, "classifications": _CLASSES, "structures": _RECORD},
    "classification": {"labels": [], "classifications": _CLASSES},
}
"""What a body has beside its text and labels, by the name of its rows."""
IN_PROCESS_TARGET, SERVED_TARGET = 3.0, 5.0


def gliner2(bench: Bench, section: str) -> list[Row]:
    """Texts/s against `batch_extract` at its best batch size, and requests/s against a FastAPI app around it."""
    bench.need("fastapi")
    model = bench.gliner2_checkpoint()
    plain = [{name: body[name] for name in ("text", "labels")} for body in bench.bodies("ner", bench.plan.texts)]
    rows = [
        _in_process(bench, f"GLiNER2 in process, {name}", section, model, _with(plain, more), IN_PROCESS_TARGET)
        for name, more in TASKS.items()
    ]
    return rows + list(_served(bench, section, model, _with(plain, TASKS["four tasks"])))


def gliclass(bench: Bench, section: str) -> list[Row]:
    """Texts/s against gliclass's pipeline at its best batch size."""
    bench.need("gliclass")
    plain = [{"text": body["text"], "labels": []} for body in bench.bodies("ner", bench.plan.texts)]
    bodies = _with(plain, {"classifications": {"topic": _CLASSES["topic"]}})
    return [_in_process(bench, "GLiClass in process", section, bench.gliclass_checkpoint(), bodies, target=None)]


def _with(bodies: Sequence[Body], more: dict[str, Any]) -> list[Body]:
    return [body | more for body in bodies]


def _in_process(
    bench: Bench, title: str, section: str, model: Path, bodies: Sequence[Body], target: float | None
) -> Row:
    """section: the name of the package that is compared with."""
    load: dict[str, Any] = {"bodies": bodies[: bench.plan.in_process_texts // 4], "seconds": bench.plan.in_process_s}
    ours = bench.ours_in_process(model, {"dtype": "float32"}, what="throughput", **load)
    theirs = job.run(f"{section}_own", what="speed", model=model, batch_sizes=[8, 4, 1], **load)
    entities = [{"entities": answer["entities"]} for answer in ours["answers"]]
    agreement = agreement_of(entities, [predictions_of(answer) for answer in theirs["answers"]])
    others = sum(a["classes"] != b["classes"] for a, b in zip(ours["answers"], theirs["answers"], strict=True))
    measured = {"ours": ours["texts_per_s"], "theirs": theirs["texts_per_s"], "agreement": agreement}
    bench.extra.setdefault(section, {})[title] = measured | {"other_classes": others}
    sizes = ", ".join(f"{size}: {per_s:.0f}" for size, per_s in theirs["texts_per_s"].items())
    differ = f"entities or classes differ in {agreement['wrong'] + others} of {agreement['answers']}"
    note = f"by batch size: {sizes}; {differ}"
    speeds = ours["texts_per_s"], theirs["best"]
    return Row(section, title, "texts/s", *speeds, section, target, note=note)


def _served(bench: Bench, section: str, model: Path, bodies: Sequence[Body]) -> Iterator[Row]:
    numbers = min(bench.plan.concurrencies), max(bench.plan.concurrencies)
    speeds: dict[tuple[str, int], float] = {}

    def measure(server: str, url: str) -> None:
        bench.warm_up(url, bodies)
        for number in numbers:
            point = bench.measure_load(server, url, bodies, concurrency=number, section=section, dtype="float32")
            speeds[server, number] = point["requests_per_s"]

    with bench.ours(model, dtype="float32") as server:
        measure("ours", server.url + EXTRACT)
    with _fastapi(bench, model) as server:
        measure("gliner2 in FastAPI", server.url + "/extract")
    for number in numbers:
        own, peer = speeds["ours", number], speeds["gliner2 in FastAPI", number]
        target = SERVED_TARGET if number == max(numbers) else None
        title = f"GLiNER2 over HTTP, four tasks, {number} concurrent"
        yield Row(section, title, "requests/s", own, peer, "gliner2 in FastAPI", target)


@contextlib.contextmanager
def _fastapi(bench: Bench, model: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "uvicorn", "benchmark.jobs.gliner2_service:app", "--port", "{port}"]
    with bench.started("gliner2", command, {"BENCH_MODEL": str(model)}) as server:
        yield server
