"""The device and the data type that a model runs in. Imports no gliner."""

from __future__ import annotations

from typing import Literal

import torch

from gliner_bento.engine.checkpoint.find import ModelError

DType = Literal["auto", "float32", "float16", "bfloat16"]


def pick_device(device: str) -> torch.device:
    """`auto` is the first CUDA device, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        picked = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"device {device!r} must be auto, cpu, cuda or cuda:<n>") from error
    if picked.type == "cuda" and (picked.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"device {device!r} does not exist; torch sees {torch.cuda.device_count()} CUDA devices")
    return picked


def pick_dtype(dtype: DType, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it natively, else float32."""
    if dtype == "auto":
        return torch.bfloat16 if computes_bfloat16(device) else torch.float32
    picked: torch.dtype = getattr(torch, dtype)
    return picked


def computes_bfloat16(device: torch.device) -> bool:
    """Whether the device computes bfloat16 natively; emulated, it is slower than float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    checks = [getattr(torch.cpu, name, None) for name in names]  # private functions, which torch may remove
    return device.type == "cpu" and any(bool(check()) for check in checks if check)
