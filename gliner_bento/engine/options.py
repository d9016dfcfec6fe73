"""How an engine computes: the settings that are its own, under the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Runtime = Literal["torch", "onnxruntime"]
Quantization = Literal["none", "int8"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """See docs/settings.md for each; `inference_lanes` and `torch_threads` are decided here, never 0."""

    runtime: Runtime = "torch"
    onnx_model_file: str = "model.onnx"
    quantization: Quantization = "none"
    enable_sequence_packing: bool = True
    enable_flashdeberta: bool = False
    enable_compilation: bool = False
    label_cache_size: int = 4096
    enable_lora: bool = False
    max_device_adapters: int = 8
    target_memory_fraction: float = 0.8
    memory_overhead_factor: float = 1.3
    inference_lanes: int = 1
    torch_threads: int = 1
    window_words: int = 0
    window_overlap_words: int = 32
    max_labels_per_pass: int = 0


DEFAULTS = EngineOptions()
