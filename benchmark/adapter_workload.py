"""Workloads with LoRA adapters: the texts of the mixed workload, each with an adapter."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchmark.answers import Predictions
from gliner_bento.loadtest.workload import Body

MIN_TEXTS = 2
"""Per adapter, for any number of adapters."""


def adapter_ids(kind: str, count: int) -> list[str]:
    """Ids of the first `count` adapters of a kind (see `jobs/adapters.py`)."""
    return [f"{kind}-{number:03}" for number in range(count)]


def round_robin(texts: Sequence[Body], adapters: Sequence[str]) -> list[Body]:
    """The adapters in turn, each with the next of its texts.

    All texts occur equally often, and each with at least two adapters (if there are two), so that the predictions of
    one adapter can be distinguished from another's.
    """
    texts_per_adapter = min(len(texts), max(MIN_TEXTS, 2 * len(texts) // len(adapters)))
    groups = len(texts) // texts_per_adapter
    return [
        texts[turn * groups + number % groups] | {"adapter_id": adapter}
        for turn in range(texts_per_adapter)
        for number, adapter in enumerate(adapters)
    ]


def zipf(bodies: Sequence[Body], count: int, seed: int = 0) -> list[Body]:
    """`count` of the bodies: the k-th adapter 1/k as often as the first, each adapter with its texts in turn."""
    of_adapters: dict[str, list[Body]] = {}
    for body in bodies:
        of_adapters.setdefault(body["adapter_id"], []).append(body)
    cycles = [itertools.cycle(own) for own in of_adapters.values()]
    weights = [1 / rank for rank in range(1, len(cycles) + 1)]
    return [next(cycle) for cycle in random.Random(seed).choices(cycles, weights, k=count)]


class Expected:
    """The predictions expected for bodies, and those for the same texts with another adapter or without one."""

    def __init__(self, bodies: Sequence[Body], predictions: Sequence[Predictions]) -> None:
        self._of_texts: dict[str, dict[str | None, Predictions]] = {}
        for body, of_body in zip(bodies, predictions, strict=True):
            self._of_texts.setdefault(body["text"], {})[body.get("adapter_id")] = of_body

    def of(self, bodies: Sequence[Body]) -> dict[str, Any]:
        """Arguments of `Bench.measure_load`: `expected`, and `other_adapters`, for each body."""
        return {
            "expected": [self._of_texts[body["text"]][body.get("adapter_id")] for body in bodies],
            "other_adapters": [_without(self._of_texts[body["text"]], body.get("adapter_id")) for body in bodies],
        }


def _without(of_adapters: Mapping[str | None, Predictions], adapter: str | None) -> list[Predictions]:
    return [predictions for name, predictions in of_adapters.items() if name != adapter]
