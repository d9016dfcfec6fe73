"""What tests of LoRA updates run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gliner_bento.engine.layers import lora


@pytest.fixture(params=["on a CPU", "on a GPU", "on a GPU with grouped products"])
def inference(request: pytest.FixtureRequest) -> Iterator[str]:
    """Inference mode, with the products of each kind of device, whose name it is."""
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(lora.SlotUpdates.__init__.__kwdefaults__, "padded", request.param != "on a CPU")
        patch.setattr(lora, "multiplies_groups", lambda _: "grouped" in request.param)
        yield request.param
