"""What a checkpoint is and needs: loads it as a server does, and looks."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gliner_bento.adapters.adapter import check_adapter
from gliner_bento.engine.checkpoint.here import size_of
from gliner_bento.engine.checkpoint.load import DType, common_dtype, pick_device
from gliner_bento.engine.checkpoint.resolve import find_checkpoint
from gliner_bento.engine.checkpoint.weights import read_weights
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import AdapterInvalid

__all__ = ["EngineOptions", "describe", "pick_device"]

_BYTES_OF = {"float32": 4, "bfloat16": 2}


def describe(
    model: str, *, device: str, dtype: DType, options: EngineOptions, max_rank: int, adapter: Path | None = None
) -> dict[str, Any]:
    """Plain values. adapter: a folder to check for this model. Raises ModelError.

    peak_memory_mb: of this process, which has loaded the model as a server does.
    """
    checkpoint = find_checkpoint(model, options)
    weights = checkpoint.weights()
    tensors = read_weights(weights)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    stored = common_dtype(tensors)
    del tensors
    engine = GLiNEREngine.load(model, device=device, dtype=dtype, options=replace(options, enable_lora=True))
    info = asdict(engine.info)
    shown: dict[str, Any] = {
        "model": checkpoint.name,
        "folder": str(checkpoint.folder),
        "weights": weights.name,
        "file_mb": _mb(size_of(weights.files)),
        "parameters": parameters,
        "stored_dtype": str(stored).removeprefix("torch.") if stored else "mixed",
        **{name: info[name] for name in ("family", "supports_relations", "max_words", "max_span_width", "languages")},
        **{
            name: info[name]
            for name in ("device", "dtype", "forward", "self_test", "batch_invariant", "cached_subwords")
        },
        "fast_path": not re.search("gliner's|transformers'", engine.info.forward),
        "weights_mb": {name: _mb(parameters * size) for name, size in _BYTES_OF.items()},
        "peak_memory_mb": _mb(_peak_bytes()),
        "fingerprint": info["fingerprint"],
        "adaptable_layers": _count_adaptable(engine.adaptable_layers),
    }
    if adapter:
        try:
            plan = check_adapter(adapter, engine.adaptable_layers, max_rank=max_rank)
        except AdapterInvalid as error:
            shown["adapter"] = {"fits": False, "reason": error.message}
        else:
            shown["adapter"] = {"fits": True, "rank": plan.rank, "layers": len(plan.layers)}
    return shown


def _count_adaptable(layers: Mapping[str, tuple[int, int] | str]) -> int:
    return sum(not isinstance(layer, str) for layer in layers.values())


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _mb(size_bytes: int) -> float:
    return round(size_bytes / 1e6, 1)
