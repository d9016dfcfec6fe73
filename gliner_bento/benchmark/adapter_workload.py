"""What is asked of LoRA adapters: the mixed workload, each text with the adapter that it is read with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from gliner_bento.benchmark.answers import Found
from gliner_bento.benchmark.workload import Body

LEAST_TEXTS = 2
"""Of an adapter, however many there are."""


def adapter_ids(kind: str, count: int) -> list[str]:
    """Names of the first `count` adapters of a kind (see `jobs/adapters.py`)."""
    return [f"{kind}-{number:03}" for number in range(count)]


def round_robin(texts: Sequence[Body], adapters: Sequence[str]) -> list[Body]:
    """Each adapter in turn, with the next of its texts: all texts equally often, and each with two adapters or more
    (but where there is only one), so that an adapter's answer can be told from another's."""
    each = min(len(texts), max(LEAST_TEXTS, 2 * len(texts) // len(adapters)))
    groups = len(texts) // each
    return [
        texts[turn * groups + number % groups] | {"adapter_id": adapter}
        for turn in range(each)
        for number, adapter in enumerate(adapters)
    ]


def zipf(bodies: Sequence[Body], count: int, seed: int = 0) -> list[Body]:
    """`count` of the bodies: the k-th adapter 1/k as often as the first, each with its texts in turn."""
    of_adapters: dict[str, list[Body]] = {}
    for body in bodies:
        of_adapters.setdefault(body["adapter_id"], []).append(body)
    turns = [itertools.cycle(own) for own in of_adapters.values()]
    weights = [1 / rank for rank in range(1, len(turns) + 1)]
    return [next(turn) for turn in random.Random(seed).choices(turns, weights, k=count)]


class Expected:
    """What is expected of bodies, and what of the same texts with other adapters or none."""

    def __init__(self, bodies: Sequence[Body], answers: Sequence[Found]) -> None:
        self._of_texts: dict[str, dict[str | None, Found]] = {}
        for body, found in zip(bodies, answers, strict=True):
            self._of_texts.setdefault(body["text"], {})[body.get("adapter_id")] = found

    def of(self, bodies: Sequence[Body]) -> dict[str, Any]:
        """For `Bench.point`: `expected` findings of each body, and `others`."""
        return {
            "expected": [self._of_texts[body["text"]][body.get("adapter_id")] for body in bodies],
            "others": [_but(self._of_texts[body["text"]], body.get("adapter_id")) for body in bodies],
        }


def _but(answers: Mapping[str | None, Found], adapter: str | None) -> list[Found]:
    return [found for name, found in answers.items() if name != adapter]
