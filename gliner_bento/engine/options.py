"""The options of checkpoints and engines. Each has the name of the setting that it is copied from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

Runtime = Literal["torch", "onnxruntime"]
Quantization = Literal["none", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """Sources of a checkpoint's files. `revision`, `token`, `cache_dir`: as in huggingface_hub; None: its default."""

    revision: str | None
    token: SecretStr | None
    cache_dir: Path | None
    convert: bool
    conversion_cache_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(CheckpointOptions):
    """See docs/settings.md for each. In `inference_lanes` and `torch_threads`, 0 (automatic) is already replaced."""

    runtime: Runtime
    onnx_model_file: str
    quantization: Quantization
    calibration_file: Path | None
    enable_sequence_packing: bool
    enable_flashdeberta: bool
    enable_compilation: bool
    enforce_eager: bool
    self_test: bool
    batch_invariant: bool
    label_cache_size: int
    enable_lora: bool
    max_device_adapters: int
    target_memory_fraction: float
    memory_overhead_factor: float
    inference_lanes: int
    torch_threads: int
    window_words: int
    window_overlap_words: int
    relation_window: Literal["auto", "whole", "sentences"]
    relation_window_sentences: int | None
    relation_window_overlap_sentences: int | None
    max_labels_per_pass: int
    max_model_len: int
    max_span_width: int
