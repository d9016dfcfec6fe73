"""Adapters saved by PEFT, of a small DeBERTa in modules like gliner's model and its wrapper."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import DebertaV2Config, DebertaV2Model

from gliner_bento.adapters.adapter import TEXT_ENCODER, ModelLayers
from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE


class Folded(nn.Module):
    """A module that holds another one under a name."""

    def __init__(self, name: str, module: nn.Module) -> None:
        super().__init__()
        self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def encoder() -> nn.Module:
    config = DebertaV2Config(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12
    )
    return DebertaV2Model(config)


def model(text_encoder: nn.Module) -> nn.Module:
    """Holds the encoder where gliner's models do."""
    for name in reversed(TEXT_ENCODER.rstrip(".").split(".")):
        text_encoder = Folded(name, text_encoder)
    return text_encoder


def wrapper(text_encoder: nn.Module) -> nn.Module:
    """Holds the model where gliner's wrapper does."""
    return Folded("model", model(text_encoder))


def layers_of(module: nn.Module) -> ModelLayers:
    def kind(part: nn.Module) -> tuple[int, int] | str:
        if isinstance(part, nn.Linear):
            return part.in_features, part.out_features
        return "an embedding" if isinstance(part, nn.Embedding) else "not a linear layer"

    return {name: kind(part) for name, part in module.named_modules() if name}


LAYERS = layers_of(model(encoder()))


@dataclass
class Saved:
    """A folder written by PEFT, and PEFT's model."""

    folder: Path
    peft: Any

    def deltas(self) -> dict[str, tuple[torch.Tensor, torch.Tensor | None]]:
        """What PEFT adds to weight and bias of each layer, by the layer's name in PEFT's model."""
        found = {}
        for name, layer in self.peft.get_base_model().named_modules():
            if isinstance(layer, LoraLayer):
                bias = layer.lora_B["default"].bias
                scaled = None if bias is None else bias.detach() * layer.scaling["default"]
                found[name] = (layer.get_delta_weight("default").detach(), scaled)
        return found

    def config(self, **changes: Any) -> Path:
        """Change fields of the configuration; the folder."""
        path = self.folder / CONFIG_FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return self.folder

    def tensors(self, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
        """Change tensors by name; the folder."""
        path = self.folder / WEIGHTS_FILE
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)
        return self.folder


Save = Callable[..., Saved]


def save_adapter(folder: Path, of: Callable[[nn.Module], nn.Module] = lambda it: it, **options: Any) -> Saved:
    """An adapter without zero weights, as after training. options: of `LoraConfig`, or the config itself."""
    config = options.pop("config", None) or LoraConfig(**{"r": 2, "target_modules": ["query_proj"]} | options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # patterns that match nothing; a bias of lora_B taken for a broken matrix
        peft = get_peft_model(of(encoder()), config)
        with torch.no_grad():
            for name, parameter in peft.named_parameters():
                if "lora_" in name:
                    parameter.normal_()
        peft.save_pretrained(folder)
    return Saved(folder, peft)
