"""Describes a checkpoint from its configuration and the headers of its weight files. Imports no gliner."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from gliner_bento.engine.checkpoint.card import languages_of
from gliner_bento.engine.checkpoint.device import DType, pick_device, pick_dtype
from gliner_bento.engine.checkpoint.find import GLINER2_MAX_WORDS, WeightFiles, is_gliner2, read_config
from gliner_bento.engine.checkpoint.here import size_of
from gliner_bento.engine.checkpoint.resolve import find_checkpoint
from gliner_bento.engine.checkpoint.weights import damaged, read_pickled, refuse_pointer
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import AdapterInvalid
from gliner_bento.storage.other_models import GLICLASS_TOKENS, is_gliclass

__all__ = ["EngineOptions", "adapter_fit", "class_of", "describe", "pick_device"]

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
_DTYPE_OF = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # by safetensors' names
_MAX_WORDS, _MAX_SPAN_WIDTH = 384, 12  # gliner's defaults
_GLINER2_SPAN_WIDTH = 8  # gliner2's default


def describe(model: str, *, device: str, dtype: DType, options: EngineOptions) -> dict[str, Any]:
    """The description of a checkpoint, as JSON values. Does not load the model. Raises ModelError."""
    checkpoint = find_checkpoint(model, options)
    weights, config = checkpoint.weights(), read_config(checkpoint.folder)
    headers = _pickled_headers(weights) if weights.pickled else _headers(weights)
    parameters = sum(prod(shape) for shape, _ in headers)
    stored_dtypes = {stored_dtype for _, stored_dtype in headers if stored_dtype}
    gliner2, gliclass = is_gliner2(checkpoint.folder), is_gliclass(checkpoint.folder)
    family = f"GLiClass ({config.get('architecture_type', 'uni-encoder')})" if gliclass else class_of(config)
    default_max_words = GLICLASS_TOKENS if gliclass else _MAX_WORDS
    if gliner2:
        default_max_words = GLINER2_MAX_WORDS
    max_span_width = None  # only span models have a limit
    if "Span" in family:
        max_span_width = options.max_span_width or _max_span_width(config, gliner2=gliner2)
    torch_device = pick_device(device)
    return {
        "model": checkpoint.name,
        "folder": str(checkpoint.folder),
        "weights": weights.name,
        "file_mb": _mb(size_of(weights.files)),
        "parameters": parameters,
        "stored_dtype": stored_dtypes.pop() if len(stored_dtypes) == 1 else "mixed",
        "family": family,
        "supports_relations": "Relex" in family or gliner2,
        "max_words": options.max_model_len or config.get("max_len") or default_max_words,
        "max_span_width": max_span_width,
        "languages": languages_of(checkpoint.folder),
        "device": str(torch_device),
        "dtype": str(pick_dtype(dtype, torch_device)).removeprefix("torch."),
        "weights_mb": {name: _mb(parameters * size) for name, size in _DTYPE_BYTES.items()},
    }


def _max_span_width(config: Mapping[str, Any], *, gliner2: bool) -> int:
    if not gliner2:
        width: int = config.get("max_width", _MAX_SPAN_WIDTH)
        return width
    return int((config.get("span_head") or {}).get("max_width") or config.get("max_width") or _GLINER2_SPAN_WIDTH)


def class_of(config: Mapping[str, Any]) -> str:
    """Name of the class that gliner uses for a configuration, by the rule of `GLiNER._get_gliner_class`. For a GLiNER2
    model, name of the class in `checkpoint.gliner2`."""
    if config.get("model_type") == "extractor":
        return "GLiNER2Boundary" if config.get("architecture") == "boundary" else "GLiNER2Span"
    level = "Token" if config.get("span_mode") == "token_level" else "Span"
    if config.get("relations_layer") is not None:
        return f"UniEncoder{level}RelexGLiNER"
    if config.get("labels_decoder") is not None:
        return f"UniEncoder{level}DecoderGLiNER"
    return f"{'Uni' if config.get('labels_encoder') is None else 'Bi'}Encoder{level}GLiNER"


def adapter_fit(
    adapter: Path, model: str, *, device: str, dtype: DType, options: EngineOptions, max_rank: int
) -> dict[str, Any]:
    """Whether an adapter fits the model. Loads the model, to know its layers. Raises ModelError."""
    from gliner_bento.adapters.adapter import check_adapter  # noqa: PLC0415  # imports peft
    from gliner_bento.engine.engine import GLiNEREngine  # noqa: PLC0415  # imports gliner

    engine = GLiNEREngine.load(model, device=device, dtype=dtype, options=options)
    try:
        plan = check_adapter(adapter, engine.adaptable_layers, max_rank=max_rank)
    except AdapterInvalid as error:
        return {"fits": False, "reason": error.message}
    return {"fits": True, "rank": plan.rank, "layers": len(plan.layers)}


def _headers(weights: WeightFiles) -> list[tuple[list[int], str]]:
    """Shape and dtype ("" if not a float) of each tensor of safetensors files, without reading the tensors."""
    headers = []
    for path in weights.files:
        refuse_pointer(path)
        try:
            with safe_open(path, framework="np") as file:
                slices = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118  # not a dict
                headers += [(tensor.get_shape(), _DTYPE_OF.get(tensor.get_dtype(), "")) for tensor in slices]
        except Exception as error:
            raise damaged(path, error) from error
    return headers


def _pickled_headers(weights: WeightFiles) -> list[tuple[list[int], str]]:
    """As `_headers`, for files that torch.save wrote."""
    return [
        (list(tensor.shape), str(tensor.dtype).removeprefix("torch.") if tensor.is_floating_point() else "")
        for tensor in read_pickled(weights.files).values()
    ]


def _mb(size_bytes: int) -> float:
    return round(size_bytes / 1e6, 1)
