"""Reads an adapter in PEFT's format or gliner2's own, checked against the layers of the model. Nothing is unpickled.

adapter_config.json         what a layer computes, see peft_config.py
adapter_model.safetensors   base_model.model.<layer>.lora_A.weight, .lora_B.weight, .lora_B.bias
                            gliner2's own: <layer>.lora_A, .lora_B
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from peft import LoraConfig
from safetensors import SafetensorError, deserialize, safe_open

from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE, files_in, invalid
from gliner_bento.adapters.peft_config import check_patterns, rank_and_scale, read_config
from gliner_bento.storage.archives import shown

ModelLayers = Mapping[str, tuple[int, int] | str]
"""Every module of the model by name: (in, out) of a linear layer that adapters may change; for other modules, the
reason why they may not ("an embedding")."""

TEXT_ENCODER = "token_rep_layer.bert_layer.model."
# An adapter was trained on the model, on gliner's wrapper of it, or on its text encoder. To get the model's layer names
# from the adapter's, the first prefix of a pair is replaced by the second.
_TRAINED_ON = (("", ""), ("model.", ""), ("", TEXT_ENCODER))

_MAX_HEADER_BYTES = 4 * 2**20
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

_TENSOR = re.compile(r"base_model\.model\.(?P<layer>.+)\.(?P<part>lora_A\.weight|lora_B\.weight|lora_B\.bias)")
_TENSOR_OF_GLINER2 = re.compile(r"(?P<layer>.+)\.(?P<part>lora_[AB])")
_OTHER_TENSORS = (
    (r"\.lora_embedding_[AB]$", "of an embedding"),
    (r"\.lora_magnitude_vector\b", "of DoRA"),
    (r"\.trainable_tokens_delta$", "of trained tokens"),
    (r"\.bias$", "a bias of the model itself (trained with bias other than 'none')"),
)


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to a linear layer: `b @ (a @ x) + bias`. PEFT's scale is in `b` and in `bias`.

    a: (rank, in). b: (out, rank). bias: (out). All float32.
    """

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter and its tensors.

    rank: the highest rank of its layers.
    updates: what it adds to layers, by the layer's name in the model.
    """

    rank: int
    updates: Mapping[str, LowRank]


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One layer of an `AdapterPlan`. saved_as: the layer's name in the weights' file."""

    saved_as: str
    rank: int
    scale: float
    has_bias: bool


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """An `Adapter` without its tensors."""

    rank: int
    layers: Mapping[str, LayerPlan]


def check_adapter(folder: Path, layers: ModelLayers, *, max_rank: int) -> AdapterPlan:
    """Check the configuration, and the header of the weights' file; raises `AdapterInvalid`."""
    with _files(folder) as (config, weights):
        fields = read_config(config)
        with safe_open(weights.name, framework="np") as file:
            slices = _by_name((name, file.get_slice(name)) for name in file.keys())  # noqa: SIM118  # not a dict
            shapes = _shapes((name, tensor.get_dtype(), tensor.get_shape()) for name, tensor in slices.items())
    return _plan(fields, shapes, layers, max_rank)


def read_adapter(folder: Path, layers: ModelLayers, *, max_rank: int) -> Adapter:
    """Read the adapter in `folder`; raises `AdapterInvalid`, also for numbers that are not finite."""
    with _files(folder) as (config, weights):  # read, not memory-mapped: the operator may overwrite the file
        fields, tensors = read_config(config), _by_name(deserialize(weights.read()))  # type: ignore[no-untyped-call]
    shapes = _shapes((name, tensor["dtype"], tensor["shape"]) for name, tensor in tensors.items())
    plan = _plan(fields, shapes, layers, max_rank)
    updates = {name: _low_rank(layer, tensors) for name, layer in plan.layers.items()}
    return Adapter(plan.rank, updates)


@contextmanager
def _files(folder: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The two files, open. Raises `AdapterInvalid` where one cannot be read."""
    try:
        config_name, weights_name = files_in({path.name for path in folder.iterdir() if path.is_file()})
        with (folder / config_name).open("rb") as config, (folder / weights_name).open("rb") as weights:
            if int.from_bytes(weights.read(8), "little") > _MAX_HEADER_BYTES:
                raise invalid(f"{WEIGHTS_FILE} is truncated, or not a safetensors file")
            weights.seek(0)
            yield config, weights
    except SafetensorError as error:
        raise invalid(f"{WEIGHTS_FILE} is damaged ({error})") from error
    except OSError as error:
        raise invalid(f"its files cannot be read ({error.strerror})") from error


def _by_name(tensors: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Tensors by their names in PEFT's format."""
    named: dict[str, Any] = {}
    for name, tensor in tensors:
        match = _TENSOR_OF_GLINER2.fullmatch(name)
        peft_name = f"base_model.model.{match['layer']}.{match['part']}.weight" if match else name
        if peft_name in named:
            raise invalid(f"tensor {shown(peft_name)} is there twice, once in gliner2's form")
        named[peft_name] = tensor
    return named


def _shapes(tensors: Iterable[tuple[str, str, Sequence[int]]]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor, sorted by name. tensors: name, data type and shape of each."""
    shapes = {}
    for name, dtype, shape in sorted(tensors):
        if dtype not in _DTYPES:
            raise invalid(f"tensor {shown(name)} is {shown(dtype)}, not one of {', '.join(_DTYPES)}")
        shapes[name] = tuple(shape)
    return shapes


def _plan(config: LoraConfig, shapes: Mapping[str, tuple[int, ...]], layers: ModelLayers, max_rank: int) -> AdapterPlan:
    parts: dict[str, dict[str, tuple[int, ...]]] = {}  # shapes, by saved layer and part
    for key, shape in shapes.items():
        if not (match := _TENSOR.fullmatch(key)):
            what = next((what for pattern, what in _OTHER_TENSORS if re.search(pattern, key)), "not a LoRA tensor")
            raise invalid(f"tensor {shown(key)} is {what}; adapters with it are not served")
        parts.setdefault(match["layer"], {})[match["part"]] = shape
    if not parts:
        raise invalid(f"{WEIGHTS_FILE} holds no tensors")
    names = _names_in_model(parts, layers)
    for saved_as, name in names.items():
        _check_shapes(saved_as, layers[name], parts[saved_as], max_rank)
    check_patterns(config, list(parts))
    planned = {name: _layer(saved_as, config, parts[saved_as]) for saved_as, name in names.items()}
    return AdapterPlan(max(layer.rank for layer in planned.values()), planned)


def _names_in_model(saved: Iterable[str], layers: ModelLayers) -> dict[str, str]:
    """The name in the model of each saved layer. All saved names are relative to one module (see `_TRAINED_ON`)."""
    candidates = [
        {name: added + name.removeprefix(removed) for name in saved if name.startswith(removed)}
        for removed, added in _TRAINED_ON
    ]
    names = max(candidates, key=lambda candidate: sum(name in layers for name in candidate.values()))
    for name in saved:
        if names.get(name) not in layers:
            raise invalid(f"layer {shown(name)} is not in this model")
    return names


def _check_shapes(saved_as: str, layer: tuple[int, int] | str, parts: Mapping[str, Any], max_rank: int) -> None:
    where = f"layer {shown(saved_as)}"
    if isinstance(layer, str):
        raise invalid(f"{where} cannot have an adapter: {layer}")
    for part in ("lora_A.weight", "lora_B.weight"):
        if part not in parts:
            raise invalid(f"{where} has no {part}")
    inputs, outputs = layer
    a_shape = parts["lora_A.weight"]
    rank = a_shape[0] if a_shape else 0
    if not 0 < rank <= max_rank:
        raise invalid(f"{where} has rank {rank}; the server's maximum is {max_rank}")
    expected = {"lora_A.weight": (rank, inputs), "lora_B.weight": (outputs, rank), "lora_B.bias": (outputs,)}
    for part, shape in parts.items():
        if shape != expected[part]:
            raise invalid(f"{where}: {part} has shape {list(shape)}, not {list(expected[part])}")


def _layer(saved_as: str, config: LoraConfig, parts: Mapping[str, tuple[int, ...]]) -> LayerPlan:
    """The plan of a layer. Raises `AdapterInvalid` if its configuration contradicts its tensors."""
    where = f"layer {shown(saved_as)}"
    rank, scale = rank_and_scale(config, saved_as)
    if rank != parts["lora_A.weight"][0]:
        raise invalid(f"{where} has rank {parts['lora_A.weight'][0]}, and {CONFIG_FILE} says {rank}")
    has_bias = "lora_B.bias" in parts
    if has_bias != config.lora_bias:
        raise invalid(f"{where} has {'a' if has_bias else 'no'} bias, which contradicts lora_bias in {CONFIG_FILE}")
    return LayerPlan(saved_as, rank, scale, has_bias)


def _low_rank(layer: LayerPlan, tensors: Mapping[str, Mapping[str, Any]]) -> LowRank:
    """The tensors of a layer, scaled. tensors: as safetensors reads them."""

    def part(name: str, scale: float) -> torch.Tensor:
        saved = tensors[f"base_model.model.{layer.saved_as}.{name}"]
        tensor = torch.frombuffer(saved["data"], dtype=_DTYPES[saved["dtype"]]).view(saved["shape"]).float() * scale
        if not bool(torch.isfinite(tensor).all()):
            raise invalid(f"layer {shown(layer.saved_as)}: {name} has a number that is not finite")
        return tensor

    bias = part("lora_B.bias", layer.scale) if layer.has_bias else None
    return LowRank(part("lora_A.weight", 1.0), part("lora_B.weight", layer.scale), bias)
