"""What tests of LoRA updates run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gliner_bento.engine.layers.lora import SlotUpdates


@pytest.fixture(params=["as on a CPU", "as on a GPU"])
def inference(request: pytest.FixtureRequest) -> Iterator[None]:
    """Inference mode, with the products of each kind of device."""
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        if request.param == "as on a GPU":
            patch.setattr(SlotUpdates, "_add_by_slot", SlotUpdates._add_grouped)
        yield
