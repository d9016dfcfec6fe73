"""Loads a checkpoint: on which device, in which dtype. Runs no code from a checkpoint and unpickles nothing."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from gliner import GLiNER

from gliner_bento.engine.checkpoint.find import ModelError, check_config
from gliner_bento.engine.checkpoint.word_splitters import check_word_splitter

logger = logging.getLogger(__name__)

DType = Literal["auto", "float32", "float16", "bfloat16"]


def load(folder: Path, device: torch.device, dtype: torch.dtype, *, flashdeberta: bool = False) -> Any:
    """gliner's model of the checkpoint's family, ready for inference.

    flashdeberta: use the backbone of the package flashdeberta.
    """
    if flashdeberta:
        check_flashdeberta(device)
    if dtype == torch.float32:
        disable_tf32()
    with _environment(USE_FLASHDEBERTA="1" if flashdeberta else ""):
        model = from_pretrained(folder, map_location=str(device), dtype=dtype)
    if flashdeberta and type(model.model.token_rep_layer.bert_layer.model).__name__ != "FlashDebertaV2Model":
        raise ModelError(f"enable_flashdeberta: gliner did not use flashdeberta's backbone for {folder.name!r}")
    model.eval()
    return model


def from_pretrained(folder: Path, **options: Any) -> Any:
    """`GLiNER.from_pretrained`, its warnings in the log. Raises ModelError; checks the configuration before loading."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_config(folder)
            check_word_splitter(folder)
            model = GLiNER.from_pretrained(str(folder), **options)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"gliner cannot load {folder.name!r}: {error}") from error
    for warning in caught:
        logger.debug("loading %s: %s", folder.name, warning.message)
    return model


def check_flashdeberta(device: torch.device) -> None:
    """Raises ModelError where flashdeberta's kernels cannot run; gliner would silently use another backbone."""
    missing = ["the package flashdeberta"] if find_spec("flashdeberta") is None else []
    missing += ["a CUDA device"] if device.type != "cuda" else []
    if missing:
        raise ModelError(f"enable_flashdeberta needs {' and '.join(missing)}")


def disable_tf32() -> None:
    """No float32 multiplication in the GPU's 19-bit TF32, which torch enables for cuDNN (LSTMs) by default."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables that gliner reads while it builds a model."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def pick_device(device: str) -> torch.device:
    """`auto` is the first CUDA device, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        picked = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"device {device!r} is none of auto, cpu, cuda, cuda:<n>") from error
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
    return device.type == "cpu" and any(bool(check()) for name in names if (check := getattr(torch.cpu, name, None)))
