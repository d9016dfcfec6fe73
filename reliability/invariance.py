"""Whether answers are the same bytes alone and under load, in each precision, and what that costs."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import torch

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.loadtest.machine import provenance
from gliner_bento.loadtest.workload import skewed
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import ExtractionItem as Item
from reliability.measurement import Measurement, Target
from reliability.served import serving

PRECISIONS: dict[str, dict[str, str]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "float32", "quantization": "int8"},
}
CONCURRENCY = 64
COST_PERCENT = 8.0
_RELATIONS = ("founded", "works for", "lives in", "located in")
_PATIENT = {"request_timeout_s": "600"}
"""A slow machine is no failure."""


def invariance(
    log: Path, *, precisions: Sequence[str], requests: int, cost_rounds: int, settings: Mapping[str, object]
) -> Measurement:
    """Send `requests` different requests one by one, then all of them at concurrency 64, and compare the bytes.

    cost_rounds: of the comparison of CPU time with and without `batch_invariant`; 0 leaves it out.
    """
    at_start = provenance()
    targets: list[Target] = []
    notes: list[str] = []
    facts: dict[str, Any] = {}
    for name in precisions:
        served = _served(log, requests, _PATIENT | dict(settings) | PRECISIONS[name])
        targets += [
            Target(f"{name}: self-check failed", "", float(not served["batch_invariant"]), 0),
            Target(f"{name}: other bytes at concurrency {CONCURRENCY}", "answers", served["different"], 0),
        ]
        facts[name] = served
        if cost_rounds:
            served["cost"] = cost = _cost(PRECISIONS[name], cost_rounds)
            targets += [
                Target(f"{name}: CPU time of {work} with the setting, more by", "%", row["cost_percent"], COST_PERCENT)
                for work, row in cost.items()
            ]
            notes.append(f"{name}: " + "; ".join(_cost_line(work, row) for work, row in cost.items()) + ".")
    counts = f"{requests} requests in each precision, answers with entities: "
    notes.insert(0, counts + ", ".join(f"{name} {served['with_entities']}" for name, served in facts.items()) + ".")
    command = f"make invariance ARGS='--requests {requests} --cost-rounds {cost_rounds}'"
    facts |= {"requests": requests, "settings": dict(settings)}
    return Measurement("invariance", command, targets, facts, at_start, notes)


def mixed_bodies(count: int) -> list[dict[str, Any]]:
    """Requests with texts, labels, relations and options of their own; low thresholds show more scores."""
    draw = random.Random(13)
    return [
        {
            "text": " ".join(body["text"].split()[: draw.choice((3, 8, 20, 60, 150))]),
            "labels": draw.sample(body["labels"], draw.randint(1, len(body["labels"]))),
            "relations": draw.sample(_RELATIONS, draw.randint(0, 2)),
            "threshold": draw.choice((0.1, 0.3, 0.5)),
            "flat_ner": draw.random() < 0.5,
            "multi_label": draw.random() < 0.3,
        }
        for body in skewed(count, seed=13)
    ]


def _served(log: Path, count: int, settings: Mapping[str, object]) -> dict[str, Any]:
    bodies = mixed_bodies(count)
    with (
        serving(log, settings) as server,
        httpx.Client(base_url=server.url, timeout=600, limits=httpx.Limits(max_connections=CONCURRENCY)) as http,
    ):
        card = http.get("/v1/model").json()

        def predicted(body: dict[str, Any]) -> str:
            answer = http.post("/v1/extract", json=body).raise_for_status().json()
            return json.dumps({key: answer[key] for key in ("entities", "relations")})

        alone = [predicted(body) for body in bodies]
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            together = list(pool.map(predicted, bodies))
    differ = [body for body, one, other in zip(bodies, alone, together, strict=True) if one != other]
    return {
        "dtype": card["dtype"],
        "batch_invariant": card["batch_invariant"],
        "with_entities": sum(bool(json.loads(answer)["entities"]) for answer in alone),
        "different": len(differ),
        "examples": differ[:5],
    }


def _cost(precision: Mapping[str, str], rounds: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds per text with and without the setting, interleaved, in one thread; the best of all rounds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        settings = Settings.model_validate(precision).decided_for("cpu", cores=1)
        options = settings.view(EngineOptions)
        engines = {
            on: GLiNEREngine.load(
                settings.model,
                device="cpu",
                dtype=settings.dtype,
                options=replace(options, batch_invariant=on, self_test=False),
            )
            for on in (False, True)
        }
        texts = skewed(40)
        items = [Item(body["text"], {label: label for label in body["labels"]}, long_text="truncate") for body in texts]
        work = {"batches of 20": [items[:20], items[20:]], "single texts": [[item] for item in items[:10]]}
        return {name: _compared(engines, batches, rounds) for name, batches in work.items()}
    finally:
        torch.set_num_threads(threads)


def _compared(engines: Mapping[bool, GLiNEREngine], batches: list[list[Item]], rounds: int) -> dict[str, float]:
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds + 1):
        for on, engine in engines.items():
            began = time.process_time()
            for batch in batches:
                engine.forward(engine.collate([engine.prepare(item) for item in batch]), 1)
            times[on].append((time.process_time() - began) * 1000 / sum(map(len, batches)))
    off_ms, on_ms = (min(times[on][1:]) for on in (False, True))
    return {"off_ms": off_ms, "on_ms": on_ms, "cost_percent": 100 * (on_ms / off_ms - 1)}


def _cost_line(work: str, row: Mapping[str, float]) -> str:
    return f"{work} {row['on_ms']:.2f} ms of CPU time per text, {row['off_ms']:.2f} without"
