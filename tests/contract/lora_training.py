"""LoRA adapters with random weights for tiny models, and gliner's models with an adapter merged into them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from gliner_bento.adapters.adapter import read_adapter
from gliner_bento.adapters.cache import Lease
from gliner_bento.adapters.device import load_for
from gliner_bento.engine.engine import GLiNEREngine

MAX_RANK = 64


@dataclass(frozen=True)
class Trained:
    """folder: in PEFT's format. merged: gliner's model with the adapter in its weights."""

    folder: Path
    merged: Any


def train(
    gliner: Any, folder: Path, targets: Sequence[str] | str, *, seed: int, strength: float = 0.25, **options: Any
) -> Trained:
    """An adapter with random weights for gliner's model, strong enough to change results."""
    config = LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": targets, **options})
    merged = copy.deepcopy(gliner)
    with warnings.catch_warnings(), torch.random.fork_rng(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        adapted = get_peft_model(merged.model, config)
        for name, parameter in adapted.named_parameters():
            if "lora_A" in name:
                parameter.normal_(0.0, 1 / parameter.shape[-1] ** 0.5)
            elif "lora_B" in name:  # its bias too, where it has one
                parameter.normal_(0.0, strength / parameter.shape[-1] ** 0.5)
        adapted.save_pretrained(folder)
        merged.model = adapted.merge_and_unload().eval()
    return Trained(folder, merged)


@contextmanager
def serving(engine: GLiNEREngine, adapters: Mapping[str, Trained]) -> Iterator[None]:
    """The engine serves these adapters from memory while the context lasts."""
    ready: dict[str, Future[Any]] = {}
    for name, trained in adapters.items():
        read = read_adapter(trained.folder, engine.adaptable_layers, max_rank=MAX_RANK)
        ready[name] = Future()
        ready[name].set_result(load_for(engine.adapter_slots.sinks, (name, "1"), read))
    engine.serve_adapters(lambda name: Lease((name, "1"), ready[name], lambda: None))
    yield


def linears(engine: GLiNEREngine, wanted: Callable[[str], bool] = lambda name: True) -> list[str]:
    """Names of the layers that adapters may change."""
    return [name for name, layer in engine.adaptable_layers.items() if isinstance(layer, tuple) and wanted(name)]
