"""Reading an adapter of the small model, and the message with which one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from peft_adapters import LAYERS

from gliner_bento.adapters.adapter import Adapter, check_adapter, read_adapter
from gliner_bento.errors import AdapterInvalid

ATTENTION = "encoder.layer.0.attention.self"
A = f"base_model.model.{ATTENTION}.query_proj.lora_A.weight"
B = f"base_model.model.{ATTENTION}.query_proj.lora_B.weight"


def read(folder: Path, max_rank: int = 8) -> Adapter:
    return read_adapter(folder, LAYERS, max_rank=max_rank)


def refused(folder: Path, max_rank: int = 8) -> str:
    """The message of the error, which is raised before a tensor is read."""
    with pytest.raises(AdapterInvalid) as raised:
        check_adapter(folder, LAYERS, max_rank=max_rank)
    assert raised.value.param == "adapter"
    assert str(folder.parent) not in raised.value.message
    assert "\n" not in raised.value.message
    return raised.value.message
