"""The worst requests: short texts of other clients, alone and beside one client that repeats an expensive request."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmark import generated
from benchmark.fairness import Flood
from benchmark.table import table
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import open_loop
from gliner_bento.loadtest.machine import provenance
from reliability.measurement import Measurement, Target
from reliability.served import serving

RATE = 4.0
LIMIT = 3.0
_LEAD_S = 1.0
_LABELS = ["person", "organization", "location", "date"]
_KINDS = [f"kind {number}" for number in range(25)]
_EVERYTHING = {"threshold": 0, "relation_threshold": 0, "flat_ner": False, "multi_label": True, "on_limit": "truncate"}
_TEXTS = [generated.document(250, seed)["text"] for seed in range(256)]
_LONG = "Tim Cook met Marie Curie in Paris. " * 28_000

REQUESTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "256 texts of 250 words": ("/v1/extract/batch", {"texts": _TEXTS, "labels": _LABELS, "threshold": 0}),
    "256 texts, 25 labels, all spans": ("/v1/extract/batch", {"texts": _TEXTS, "labels": _KINDS, **_EVERYTHING}),
    "20 relations, all pairs": (
        "/v1/extract",
        {"text": "Tim Cook met Marie Curie " * 25, "labels": _LABELS[:2], "relations": _KINDS[:20], **_EVERYTHING},
    ),
    "one text of a million characters": ("/v1/extract", {"text": _LONG, "labels": _KINDS, **_EVERYTHING}),
}


def worst(log: Path, *, seconds: float, settings: Mapping[str, object]) -> Measurement:
    """Short texts for `seconds` alone, then beside each of the expensive requests. All clients are one tenant."""
    at_start = provenance()
    short = workload.encoded(workload.short(256))
    with serving(log, settings) as server:

        def others() -> dict[str, Any]:
            return open_loop(f"{server.url}/v1/extract", short, rate=RATE, seconds=seconds).summary()

        others()  # warm-up
        alone, beside = others(), {}
        for name, (path, body) in REQUESTS.items():
            with Flood(server.url + path, [json.dumps(body).encode()], 1) as flood:
                time.sleep(_LEAD_S)
                beside[name] = others() | {"expensive": dict(flood.statuses)}
    ratios = {name: _ratio(summary, alone) for name, summary in beside.items()}
    targets = [Target(f"p95 of others beside {name}", "x alone", ratio, LIMIT) for name, ratio in ratios.items()]
    rows = [
        [name, summary["p50_ms"], summary["p95_ms"], str(summary["statuses"])]
        for name, summary in {"alone": alone, **beside}.items()
    ]
    notes = [table(["short texts", "p50 ms", "p95 ms", "answers"], rows)]
    facts = {"rate": RATE, "alone": alone, "beside": beside, "settings": dict(settings)}
    command = f"python -m reliability worst --seconds {seconds:g}"
    return Measurement("worst", command, targets, facts, at_start, notes)


def _ratio(beside: Mapping[str, Any], alone: Mapping[str, Any]) -> float | None:
    """None if a request was not answered."""
    if not alone["p95_ms"] or beside["statuses"].get("200", 0) < beside["requests"]:
        return None
    return float(beside["p95_ms"] / alone["p95_ms"])
