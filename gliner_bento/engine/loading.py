"""Loading a checkpoint: from where, on which device, in which dtype. Runs no code from a checkpoint and unpickles none.

Safe means: weights come from `model.safetensors` or an ONNX file alone, and no configuration may name code
(`auto_map`), because gliner hands configurations to transformers with `trust_remote_code=True`.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

import torch
from gliner import GLiNER
from huggingface_hub import snapshot_download
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig

from gliner_bento.engine.tokenize import Limits

logger = logging.getLogger(__name__)

DType = Literal["auto", "float32", "float16", "bfloat16"]

WEIGHTS = "model.safetensors"
CONFIG = "gliner_config.json"
# Of a hub's checkpoint beside its graph: configurations and tokenizers.
_BESIDE_A_GRAPH = ["*.json", "*.txt", "*.model"]
_NEVER_NEEDED = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.xml", "*.tflite"]

# Where the configuration of a backbone is: elsewhere, under a name, unless the checkpoint holds it.
_BACKBONES = {
    "model_name": "encoder_config",
    "labels_encoder": "labels_encoder_config",
    "labels_decoder": "labels_decoder_config",
}

# Sub-word tokens per word where neither the tokenizer nor the encoder has a limit of its own (relative positions):
# attention costs the square of a sequence's length, and one "word" may be a megabyte long.
_TOKENS_PER_WORD = 8


class ModelError(Exception):
    """The model cannot be served; the message tells an operator why."""


def folder_of(model: str, onnx_file: str | None = None) -> Path:
    """The checkpoint's folder: `model` itself, or the download of the hub id `model`.

    onnx_file: the graph, relative to the folder, that is wanted in place of weights.
    """
    if onnx_file is not None and not is_beside(onnx_file):
        raise ModelError(f"onnx_model_file {onnx_file!r} is not inside the checkpoint's folder")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        wanted = [*_BESIDE_A_GRAPH, f"{onnx_file}*"] if onnx_file else None
        try:
            unwanted = None if onnx_file else _NEVER_NEEDED
            folder = Path(snapshot_download(model, allow_patterns=wanted, ignore_patterns=unwanted))
        except Exception as error:
            raise ModelError(f"{model!r} is no folder here, and no download from the hub: {error}") from error
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{model!r} is no GLiNER checkpoint: it has no {CONFIG}")
    if onnx_file and not (folder / onnx_file).is_file():
        raise ModelError(f"{model!r} ships no {onnx_file}; export it with gliner's export_to_onnx, or use torch")
    if not onnx_file and not (folder / WEIGHTS).is_file():
        raise ModelError(
            f"{model!r} has no {WEIGHTS}, and other weights are never unpickled; convert it to safetensors"
        )
    return folder


def is_beside(location: str) -> bool:
    """Whether `location`, on whatever system, stays in the folder that it is relative to."""
    paths = PurePosixPath(location), PureWindowsPath(location)
    return bool(location) and not any(path.anchor or ".." in path.parts for path in paths)


def check_config(folder: Path) -> None:
    """Raises ModelError for a checkpoint that names code, or is of a kind that is not served."""
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text("utf-8"))
    if config.get("model_type") == "gliner_streaming_span":
        raise ModelError("streaming GLiNER models keep a session between calls; they are not served")
    if config.get("precomputed_prompts_mode"):
        raise ModelError("this checkpoint has its labels built in (precomputed prompts); they could not be asked for")
    if config.get("decoder_mode") == "prompt" and config.get("labels_decoder"):
        raise ModelError("this checkpoint invents its labels (decoder_mode 'prompt'); they could not be asked for")
    found: list[Any] = [config]
    found += [json.loads(path.read_text("utf-8")) for path in folder.rglob("tokenizer_config.json")]
    for name, inside in _BACKBONES.items():
        if config.get(name) and not config.get(inside):
            found.append(PretrainedConfig.get_config_dict(config[name])[0])
    if names_code(found):
        raise ModelError("the checkpoint's configuration names code to run (auto_map); it is not loaded")


def names_code(value: Any) -> bool:
    """Whether transformers would find a reference to code anywhere in this configuration."""
    if isinstance(value, dict):
        return "auto_map" in value or any(map(names_code, value.values()))
    return isinstance(value, list) and any(map(names_code, value))


def load(folder: Path, device: torch.device, dtype: torch.dtype, *, flashdeberta: bool = False) -> Any:
    """gliner's model of whichever family the checkpoint is, ready for inference.

    flashdeberta: its backbone is the package flashdeberta's.
    """
    if flashdeberta:
        check_flashdeberta(device)
    if dtype == torch.float32:
        compute_exactly()
    with _environment(USE_FLASHDEBERTA="1" if flashdeberta else ""):
        model = from_pretrained(folder, map_location=str(device), dtype=dtype)
    if flashdeberta and type(model.model.token_rep_layer.bert_layer.model).__name__ != "FlashDebertaV2Model":
        raise ModelError(f"enable_flashdeberta: the backbone that gliner made of {folder.name!r} is not flashdeberta's")
    model.eval()
    return model


def from_pretrained(folder: Path, **options: Any) -> Any:
    """gliner's, with its warnings in the log. Raises ModelError, first of all for a checkpoint that names code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_config(folder)
            model = GLiNER.from_pretrained(str(folder), **options)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"gliner cannot load {folder.name!r}: {error}") from error
    for warning in caught:
        logger.debug("loading %s: %s", folder.name, warning.message)
    return model


def check_flashdeberta(device: torch.device) -> None:
    """Raises ModelError where its kernels could not run; gliner would go on without a word."""
    missing = ["the package flashdeberta"] if find_spec("flashdeberta") is None else []
    missing += ["a CUDA device"] if device.type != "cuda" else []
    if missing:
        raise ModelError(f"enable_flashdeberta needs {' and '.join(missing)}")


def compute_exactly() -> None:
    """float32 is float32: no multiplication in the GPU's 19-bit TF32, which torch's cuDNN (LSTMs) has on by itself."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Names that gliner reads while it builds a model, and no later."""
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
        raise ModelError(f"device {device!r} is not here; torch sees {torch.cuda.device_count()} CUDA devices")
    return picked


def pick_dtype(dtype: DType, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it natively, else float32."""
    if dtype == "auto":
        return torch.bfloat16 if computes_bfloat16(device) else torch.float32
    picked: torch.dtype = getattr(torch, dtype)
    return picked


def computes_bfloat16(device: torch.device) -> bool:
    """Natively: emulated bfloat16 is slower than float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(bool(check()) for name in names if (check := getattr(torch.cpu, name, None)))


def limits_of(model: Any) -> Limits:
    """What the model reads of one text: gliner's `max_len` words, and the tokens of tokenizer and encoder."""
    words: int = model.config.max_len
    processor = model.data_processor
    labels_tokenizer = getattr(processor, "labels_tokenizer", None)
    label_tokens = token_limit(_encoder(model, "labels_encoder"), labels_tokenizer) if labels_tokenizer else None
    tokens = token_limit(_encoder(model, "bert_layer"), processor.transformer_tokenizer)
    return Limits(words, tokens or words * _TOKENS_PER_WORD, label_tokens or words * _TOKENS_PER_WORD)


def _encoder(model: Any, name: str) -> nn.Module:
    """A model's encoder; beside a graph, the shape without weights of the one that it was made from."""
    if isinstance(model.model, nn.Module):
        encoder: nn.Module = getattr(model.model.token_rep_layer, name)
        return encoder
    elsewhere = {"bert_layer": "model_name", "labels_encoder": "labels_encoder"}[name]
    config = getattr(model.config, _BACKBONES[elsewhere])
    if config is None:
        config = AutoConfig.from_pretrained(getattr(model.config, elsewhere))
    with torch.device("meta"):
        shape: nn.Module = AutoModel.from_config(config)
    return shape


def token_limit(encoder: nn.Module, tokenizer: Any) -> int | None:
    """Tokens that one sequence may have, special ones included; None if only memory limits them.

    gliner cuts silently at the tokenizer's `model_max_length`, and an encoder with a table of absolute positions
    fails beyond its end. RoBERTa and its kin count positions from `padding_idx + 1`.
    """
    limits = [tokenizer.model_max_length] if tokenizer.model_max_length < 1_000_000 else []
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            offset = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - offset)
    return min(limits, default=None)
