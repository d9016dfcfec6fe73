"""Loads a checkpoint's model on a device, in a dtype. Runs no code from a checkpoint."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from torch import nn
from transformers import PreTrainedModel

from gliner_bento.engine.checkpoint.convert import read_converted
from gliner_bento.engine.checkpoint.find import PICKLED, ModelError, configs_in, is_gliner2, listed, refuse_untrue
from gliner_bento.engine.checkpoint.gliclass import build_gliclass
from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Span, build_gliner2
from gliner_bento.engine.checkpoint.reasons import reason
from gliner_bento.engine.checkpoint.resolve import Checkpoint
from gliner_bento.engine.checkpoint.weights import Tensors
from gliner_bento.engine.checkpoint.word_splitters import check_word_splitter
from gliner_bento.storage.other_models import is_gliclass
from gliner_bento.storage.scratch import scratch_folder

logger = logging.getLogger(__name__)

# Match the names of tensors that gliner builds but never uses: a backbone's pooler; in bi-encoders, also an LSTM.
_NEVER_RUN = re.compile(r"\.pooler\.")
_NEVER_RUN_IN_BI_ENCODERS = re.compile(rf"{_NEVER_RUN.pattern}|^rnn\.")

_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".onnx", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"}
MAX_SPAN_WIDTH = 1000
"""Maximum `max_width`, in words, of a model that the operator has not chosen: every word begins so many spans."""
# Of a model that the operator has not chosen, tensors that its weights lack may have this many times their numbers.
_MAX_ABSENT_FACTOR = 4
# A buffer of encoders, which only earlier versions of transformers saved.
_LEGACY_BUFFER = "position_ids"


def load(
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    *,
    flashdeberta: bool = False,
    max_words: int = 0,
    max_span_width: int = 0,
) -> Any:
    """gliner's model of the checkpoint's family, ready for inference.

    flashdeberta: use the backbone of the package flashdeberta. max_words, max_span_width: replace the checkpoint's
    `max_len` and `max_width` unless 0; for GLiClass, max_words is the maximum number of tokens.
    """
    if flashdeberta:
        check_flashdeberta(device)
    if dtype == torch.float32:
        disable_tf32()
    weights = checkpoint.weights()
    with ThreadPoolExecutor(1, thread_name_prefix="weights") as thread:
        reading = thread.submit(read_converted, weights, checkpoint.options)
        if not checkpoint.chosen:
            check_config_fits(checkpoint, reading.result())
        if is_gliclass(checkpoint.folder):
            folder, name = checkpoint.folder, checkpoint.name
            model = build_gliclass(folder, name, max_tokens=max_words, device=str(device), dtype=dtype)
            load_weights(model.model, reading.result(), weights.name)
            return model
        with _environment(USE_FLASHDEBERTA="1" if flashdeberta else ""):
            options = {"map_location": str(device), "dtype": dtype}
            model, tensors = build(
                checkpoint, reading.result, max_words=max_words, max_span_width=max_span_width, **options
            )
    if flashdeberta and type(text_encoder_of(model)).__name__ != "FlashDebertaV2Model":
        raise ModelError(f"enable_flashdeberta: gliner did not use flashdeberta's backbone for {checkpoint.name!r}")
    load_weights(model.model, tensors, weights.name)
    model.eval()
    return model


def build(
    checkpoint: Checkpoint,
    read: Callable[[], Tensors],
    *,
    max_words: int = 0,
    max_span_width: int = 0,
    **options: Any,
) -> tuple[Any, Tensors]:
    """gliner's or gliner2's model of the checkpoint, with random weights; and the checkpoint's tensors, from `read`.
    options: `map_location` and `dtype` of `GLiNER.from_pretrained`."""
    if is_gliner2(checkpoint.folder):
        model, tensors = build_gliner2(
            checkpoint.folder, checkpoint.name, read(), max_words=max_words, max_span_width=max_span_width
        )
        model.model.to(options.get("map_location"), options.get("dtype"))
        return model, tensors
    limits = {"max_length": max_words or None, "max_width": max_span_width or None}
    with _without_weights(checkpoint) as folder:
        return from_pretrained(checkpoint, folder, **options, **limits), read()


def text_encoder_of(model: Any) -> nn.Module:
    """The backbone of a model of gliner or gliner2."""
    inner = model.model
    backbone: nn.Module = inner.encoder if isinstance(model, GLiNER2Span) else inner.token_rep_layer.bert_layer.model
    return backbone


def from_pretrained(checkpoint: Checkpoint, folder: Path, **options: Any) -> Any:
    """Call `GLiNER.from_pretrained` with `folder`, and log its warnings. Parts of backbones that the folder lacks come
    from the hub's cache. Raises ModelError."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_word_splitter(folder)
            model = GLiNER.from_pretrained(
                str(folder), cache_dir=checkpoint.hub.cache_dir, local_files_only=True, **options
            )
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"gliner cannot load {checkpoint.name!r}: {reason(error, checkpoint.folder)}") from error
    for warning in caught:
        logger.debug("loading %s: %s", checkpoint.name, warning.message)
    return model


@contextmanager
def _without_weights(checkpoint: Checkpoint) -> Iterator[Path]:
    """A folder with the checkpoint's files, but with an empty file of weights. gliner must not read weights, because it
    reads fewer formats and does not check the tensors' names."""
    with scratch_folder() as temporary:
        for path in checkpoint.folder.iterdir():
            if path.suffix not in _WEIGHT_SUFFIXES:
                (temporary / path.name).symlink_to(path.resolve())
        torch.save({}, temporary / PICKLED)  # unlike safetensors, also loaded on the meta device
        yield temporary


def load_weights(model: nn.Module, tensors: Tensors, source: str) -> None:
    """Copy the tensors into gliner's inner model. Raises ModelError if one is missing or does not fit.

    source: the name of the tensors' file. These may be missing: buffers, tensors that share memory with a tensor of the
    file, and those of modules that gliner never runs (a backbone's pooler, a bi-encoder's LSTM). Tensors that the model
    does not have are logged.
    """
    own = model.state_dict()
    check_shapes(own, tensors, source)
    filled = {own[name].data_ptr() for name in tensors if name in own}
    optional = {name for name, _ in model.named_buffers()}
    absent = own.keys() - tensors.keys() - optional
    never_run = _NEVER_RUN_IN_BI_ENCODERS if any("labels_encoder." in name for name in own) else _NEVER_RUN
    if missing := {name for name in absent if own[name].data_ptr() not in filled and not never_run.search(name)}:
        raise ModelError(f"{source} lacks {len(missing)} of the model's tensors: {listed(missing)}")
    if extra := {name for name in tensors.keys() - own.keys() if not name.endswith(_LEGACY_BUFFER)}:
        logger.warning("%s has tensors that the model does not use: %s", source, listed(extra))
    if (stored := common_dtype(tensors)) not in (None, torch.float32):
        logger.info("%s has weights in %s; the model runs in %s", source, stored, common_dtype(own))
    refuse_not_finite(model, tensors, source)
    model.load_state_dict(tensors, strict=False)


def refuse_not_finite(model: nn.Module, tensors: Tensors, source: str) -> None:
    """Raises ModelError if a tensor outside the backbones has NaN or infinite numbers.

    A request may not use it: without this check, the fault would show only in some answers. Backbones are not checked,
    because summing gigabytes takes seconds: their faults reach every score.
    """
    inner = {name: module for name, module in model.named_modules() if isinstance(module, PreTrainedModel)}
    backbones = tuple(f"{name}." for name in inner if not any(other.startswith(f"{name}.") for other in inner) and name)
    heads = {name for name, _ in model.named_parameters() if not name.startswith(backbones)} & tensors.keys()
    if broken := {name for name in heads if not bool(tensors[name].sum(dtype=torch.float32).isfinite())}:
        raise ModelError(f"{source} has numbers that are NaN or infinite: {listed(broken)}")


def check_shapes(own: Tensors, tensors: Tensors, source: str) -> None:
    """Raises ModelError if a tensor has another shape than the model's `own` one."""
    shapes = {name: (tuple(tensor.shape), tuple(own[name].shape)) for name, tensor in tensors.items() if name in own}
    if wrong := [f"{name} {saved}, not {needed}" for name, (saved, needed) in shapes.items() if saved != needed]:
        raise ModelError(f"{source} does not fit gliner_config.json: {listed(wrong)}")


def check_config_fits(checkpoint: Checkpoint, tensors: Tensors) -> None:
    """Raises ModelError for a configuration that the tensors do not fit, before a model of its sizes takes memory.

    Builds the model on torch's meta device, which has shapes and no memory. The tensors are memory-mapped."""
    configs = configs_in(checkpoint.folder)
    refuse_untrue(configs, len(tensors))
    widths = [config.get("max_width") for config in configs]
    if wide := [width for width in widths if isinstance(width, int | float) and not 0 < width <= MAX_SPAN_WIDTH]:
        raise ModelError(f"max_width is {wide[0]}; it must be 1 to {MAX_SPAN_WIDTH}")
    with torch.device("meta"):
        if is_gliclass(checkpoint.folder):
            model: Any = build_gliclass(checkpoint.folder, checkpoint.name, device="meta")
        else:
            model, tensors = build(checkpoint, lambda: tensors, map_location="meta", dtype=torch.float32)
    own, source = model.model.state_dict(), checkpoint.weights().name
    check_shapes(own, tensors, source)
    absent = own.keys() - tensors.keys()  # those that share memory with others too: there are a few of these
    stored = sum(tensor.numel() for tensor in tensors.values())
    if sum(own[name].numel() for name in absent) > _MAX_ABSENT_FACTOR * stored:
        raise ModelError(f"{source} lacks most of the model's tensors: {listed(absent)}")


def common_dtype(tensors: Tensors) -> torch.dtype | None:
    """The data type of all floating-point tensors; None if they differ."""
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else None


def check_flashdeberta(device: torch.device) -> None:
    """Raises ModelError where flashdeberta's kernels cannot run; gliner would silently use another backbone."""
    missing = ["the package flashdeberta"] if find_spec("flashdeberta") is None else []
    missing += ["a CUDA device"] if device.type != "cuda" else []
    if missing:
        raise ModelError(f"enable_flashdeberta needs {' and '.join(missing)}")


def disable_tf32() -> None:
    """Multiply float32 on a GPU without TF32 (19 bits), which torch enables for cuDNN (LSTMs) by default."""
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
