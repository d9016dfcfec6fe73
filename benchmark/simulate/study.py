"""The scenes that are compared, and what is kept of them: plain values for simulate.json."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmark.bench import log_progress
from benchmark.simulate import curves
from benchmark.simulate.scene import Death, Scene, run, summary

Data = dict[str, Any]

SIZES = (1, 10, 100, 1000)
LOADS = (0.5, 0.7, 0.9)
OUR_LOADS = (0.3, 0.5, 0.7, 0.8, 0.9)
_REQUESTS = {1: 6000, 10: 4000, 100: 8000, 1000: 20_000}
_POLICIES = ("ours", "power of two", "round robin")
_OF_TEN = (*_POLICIES, "random")
_OF_SCENE = ("replicas", "policy", "load", "requests", "adapters", "adapter_capacity", "slow", "late",
             "late_s", "concurrency", "rate")  # fmt: skip


def study(*, share: float = 1.0) -> Data:
    """Run all scenes with a share of their requests."""
    parts: dict[str, Callable[[float], Any]] = {
        "replica": _replica,
        "sizes": _sizes,
        "adapters": _adapters,
        "slow": _slow,
        "deaths": _deaths,
        "growth": _growth,
    }
    data: Data = {"curves": _curves(), "share_of_requests": share}
    for name, part in parts.items():
        began_s = time.process_time()
        data[name] = part(share)
        log_progress(f"{name}: {time.process_time() - began_s:.0f} s of CPU time")
    return data


def row(scene: Scene) -> Data:
    """The scene and its result."""
    result = run(scene)
    return {name: getattr(scene, name) for name in _OF_SCENE} | summary(scene, result) | {"seconds": result.seconds}


def _curves() -> Data:
    measured = curves.measured()
    return {
        "from": curves.results_path(),
        "text_ms": {str(words): measured.text_s(words) * 1000 for words in (6, 25, 50, 100, 250, 384)},
        "with_adapter_ms": measured.adapter_s * 1000,
        "adapter_load_ms": measured.load_s * 1000,
        "texts_per_s": measured.texts_per_s,
        "lanes": measured.lanes,
    }


def _replica(share: float) -> list[Data]:
    """One simulated replica beside the measured server."""
    points = json.loads(curves.RESULTS.read_text("utf-8"))["points"]
    requests = int(3000 * share)
    rows = []
    for point in points:
        if point["section"] == "bf16" and point["server"] == "ours" and point["route"] == "/v1/extract":
            scene = Scene(replicas=1, concurrency=point["concurrency"], rate=point["rate"], requests=requests)
            rows.append(row(scene) | {"measured": point, "name": "mixed texts"})
    rotating = curves.point_of(points, section="adapters_tiers", adapters="256 adapters over 8 slots")
    scene = Scene(replicas=1, concurrency=32, requests=requests, adapters=256, adapter_capacity=32)
    rows.append(row(scene) | {"measured": rotating, "name": "256 adapters, 32 in memory"})
    kept = ("requests_per_s", "p50_ms", "p95_ms", "p99_ms")
    return [one | {"measured": {name: one["measured"][name] for name in kept}} for one in rows]


def _sizes(share: float) -> list[Data]:
    """Every policy at ten replicas; the fleet's own at more loads than the others."""
    scenes = [
        Scene(replicas=replicas, policy=policy, load=load, requests=int(_REQUESTS[replicas] * share))
        for replicas in SIZES
        for policy in (("ours",) if replicas == 1 else _OF_TEN if replicas == 10 else _POLICIES)
        for load in (OUR_LOADS if policy == "ours" else LOADS)
        if load >= 0.5 or replicas <= 10
    ]
    return [row(scene) for scene in scenes]


def _adapters(share: float) -> list[Data]:
    scenes = [
        Scene(replicas=10, load=load, adapters=1000, requests=int(10_000 * share), warm_up=0.3) for load in (0.3, 0.6)
    ]
    scenes.append(Scene(replicas=100, load=0.6, adapters=10_000, requests=int(25_000 * share), warm_up=0.5))
    return list(_compared(scenes, _POLICIES))


def _slow(share: float) -> list[Data]:
    """One of ten replicas takes four times as long."""
    return list(_compared([Scene(replicas=10, slow=1, load=0.6, requests=int(6000 * share))], _POLICIES))


def _deaths(share: float) -> list[Data]:
    """One of ten replicas dies, and is back 20 s later."""
    requests, rows = int(20_000 * share), []
    span_s = requests / (0.7 * 10 * curves.measured().texts_per_s)
    death = Death(3, at_s=0.25 * span_s, down_s=0.4 * span_s)
    for policy in ("ours", "round robin"):
        scene = Scene(replicas=10, policy=policy, load=0.7, requests=requests, deaths=[death], warm_up=0.0)
        rows.append({"policy": policy, "at_s": death.at_s, "down_s": death.down_s, **summary(scene, run(scene))})
    return rows


def _growth(share: float) -> list[Data]:
    """The load of two replicas doubles after 10 s, and two more start with a delay."""
    rows = []
    for late_s in (15.0, 30.0, 60.0):
        scene = Scene(
            replicas=2, load=0.7, after=(10.0, 1.4), late=2, late_s=10.0 + late_s, requests=int(14_000 * share)
        )
        rows.append({"delay_s": late_s, **summary(scene, run(replace(scene, warm_up=0.0)))})
    return rows


def _compared(scenes: Sequence[Scene], policies: Sequence[str]) -> Iterator[Data]:
    """Each scene with each policy, which one replica does not need."""
    for scene in scenes:
        for policy in policies if scene.replicas > 1 else policies[:1]:
            yield row(replace(scene, policy=policy))
