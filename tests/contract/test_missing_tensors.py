"""Tensors that weights lack or have too many of: which may be missing, which are refused, which are logged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints import LABELS, TEXTS, load_engine, named
from comparison import extract_one
from safetensors.torch import load_file

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.load import load_weights
from gliner_bento.tasks.extraction import ExtractionItem as Item

ITEM = Item(TEXTS[1], named(LABELS), threshold=0.3)


class Tied(torch.nn.Module):
    """Parameters, one under two names, a buffer and an encoder's pooler."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 3)
        self.second = torch.nn.Linear(2, 3)
        self.second.weight = self.first.weight
        self.encoder = torch.nn.ModuleDict({"pooler": torch.nn.Linear(2, 2)})
        self.register_buffer("positions", torch.arange(4))


FITTING = {"first.weight": torch.ones(3, 2), "first.bias": torch.ones(3), "second.bias": torch.ones(3)}


def test_buffers_tied_weights_and_poolers_may_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    model = Tied()
    load_weights(model, FITTING, "a.bin")
    assert torch.equal(model.second.weight, torch.ones(3, 2))
    assert torch.equal(model.positions, torch.arange(4))
    assert caplog.text == ""


def test_missing_and_misshapen_tensors_are_refused_by_name() -> None:
    lacking = {name: tensor for name, tensor in FITTING.items() if name.startswith("first")}
    with pytest.raises(ModelError, match=r"^a\.bin lacks 1 of the model's tensors: second\.bias$"):
        load_weights(Tied(), lacking, "a.bin")
    with pytest.raises(ModelError, match=r"^a\.bin does not fit gliner_config\.json: first\.bias \(4,\), not \(3,\)$"):
        load_weights(Tied(), FITTING | {"first.bias": torch.ones(4)}, "a.bin")


def test_tensors_that_the_model_does_not_use_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    extra = {f"extra.{number}": torch.ones(1) for number in range(7)}
    load_weights(Tied(), FITTING | extra | {"embeddings.position_ids": torch.ones(1)}, "a.bin")
    [record] = caplog.records
    assert record.getMessage() == (
        "a.bin has tensors that the model does not use: extra.0, extra.1, extra.2, extra.3, extra.4 and 2 more"
    )


def test_the_lstm_that_a_bi_encoder_never_runs_may_be_missing(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("bi-span", seed=1), tmp_path / "bi"))
    config = json.loads((folder / "gliner_config.json").read_text())
    (folder / "gliner_config.json").write_text(json.dumps(config | {"num_rnn_layers": 1}))
    assert "rnn" not in "".join(load_file(folder / "model.safetensors"))
    assert extract_one(load_engine(folder), ITEM).entities
