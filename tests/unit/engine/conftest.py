"""What tests of LoRA updates run in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gliner_bento.engine.layers.lora import SlotUpdates


def grouped(updates: SlotUpdates, *tensors: Any) -> None:
    """The products of a Hopper GPU in bfloat16."""
    updates._grouped = True
    updates._add_together(*tensors)


def dense(updates: SlotUpdates, *tensors: Any) -> None:
    """The products of any other GPU."""
    updates._grouped = False
    updates._add_together(*tensors)


@pytest.fixture(params=[None, grouped, dense], ids=["by slot", "grouped", "dense"])
def inference(request: pytest.FixtureRequest) -> Iterator[None]:
    """Inference mode, with the products of each kind of device; on a CPU they are slot by slot."""
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        if request.param is not None:
            patch.setattr(SlotUpdates, "_add_by_slot", request.param)
        yield
