"""The engine on a device with simulated memory: calibration, and out of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import TEXTS, load_engine, named
from views import view

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import DoesNotFit
from gliner_bento.tasks.extraction import ExtractionItem as Item

ITEM = Item(TEXTS[1], named(["person", "city"]), threshold=0.3)


class Device:
    """A `CudaAllocator` on which every batch allocates `batch_bytes`."""

    def __init__(self, size_bytes: int, batch_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._batch_bytes = batch_bytes

    def free_bytes(self) -> int:
        return self._size_bytes

    def reset_peak(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return self._batch_bytes

    def empty_cache(self) -> None:
        pass


@pytest.fixture
def measured(checkpoint: Callable[..., Path]) -> Callable[..., GLiNEREngine]:
    def loaded(**options: Any) -> GLiNEREngine:
        engine = load_engine(checkpoint("span", seed=1))
        plan = {"target_memory_fraction": 1.0, "memory_overhead_factor": 1.0, **options}
        engine.measure_memory(Device(10**9, 10**6), view(EngineOptions, **plan))
        return engine

    return loaded


def run(engine: GLiNEREngine, items: int) -> Any:
    return engine.decode(engine.forward(engine.collate([engine.prepare(ITEM) for _ in range(items)]), 1))


def test_a_cpu_has_no_budget(engine: Any) -> None:
    assert engine("span", seed=1).batch_tokens is None


def test_the_budget_follows_the_settings(measured: Any) -> None:
    full = measured().batch_tokens
    assert full > 1000
    assert measured(target_memory_fraction=0.5).batch_tokens == full // 2
    assert measured(memory_overhead_factor=2.0).batch_tokens == full // 2
    assert measured(inference_lanes=2).batch_tokens == int(full * 1.25 / 2.25), "the express lane counts as a quarter"


def test_out_of_memory_fails_the_item_and_shrinks_the_budget(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = measured()
    full = engine.batch_tokens
    assert all(answer.entities for answer in run(engine, 3))

    def fail(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(torch.nn.functional, "layer_norm", fail)
    with pytest.raises(DoesNotFit):
        run(engine, 3)
    assert engine.batch_tokens < full // 2
