"""Finds a checkpoint and checks it before anything of it is loaded.

Safe means: weights come from `model.safetensors` or an ONNX file only, and no configuration may name code (`auto_map`),
because gliner passes configurations to transformers with `trust_remote_code=True`.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from huggingface_hub import snapshot_download
from transformers import PretrainedConfig

from gliner_bento.exits import StartupError

WEIGHTS = "model.safetensors"
CONFIG = "gliner_config.json"
# Downloaded beside an ONNX file: configurations, tokenizers and the card.
_BESIDE_ONNX = ["*.json", "*.txt", "*.model", "README.md"]
_NEVER_DOWNLOADED = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.xml", "*.tflite"]

# A backbone's hub id or folder in the config -> its configuration in the config, if the checkpoint holds it.
BACKBONES = {
    "model_name": "encoder_config",
    "labels_encoder": "labels_encoder_config",
    "labels_decoder": "labels_decoder_config",
}


class ModelError(StartupError):
    """The model cannot be served; the message tells an operator why."""


def folder_of(model: str, onnx_file: str | None = None) -> Path:
    """The checkpoint's folder: `model` itself, or the download of the hub id `model`.

    onnx_file: the ONNX file to use in place of weights, relative to the folder.
    """
    if onnx_file is not None and not is_beside(onnx_file):
        raise ModelError(f"onnx_model_file {onnx_file!r} is not inside the checkpoint's folder")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        allowed = [*_BESIDE_ONNX, f"{onnx_file}*"] if onnx_file else None
        try:
            ignored = None if onnx_file else _NEVER_DOWNLOADED
            folder = Path(snapshot_download(model, allow_patterns=allowed, ignore_patterns=ignored))
        except Exception as error:
            raise ModelError(f"{model!r} is no folder, and cannot be downloaded from the hub: {error}") from error
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{model!r} is no GLiNER checkpoint: it has no {CONFIG}")
    if onnx_file and not (folder / onnx_file).is_file():
        raise ModelError(f"{model!r} has no {onnx_file}; export it with gliner's export_to_onnx, or use torch")
    if not onnx_file and not (folder / WEIGHTS).is_file():
        raise ModelError(
            f"{model!r} has no {WEIGHTS}, and other weights are never unpickled; convert it to safetensors"
        )
    return folder


def is_beside(location: str) -> bool:
    """Whether a relative `location` stays in its folder, on any operating system."""
    paths = PurePosixPath(location), PureWindowsPath(location)
    return bool(location) and not any(path.anchor or ".." in path.parts for path in paths)


def check_config(folder: Path) -> None:
    """Raises ModelError for a checkpoint that names code, or whose kind is not supported."""
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text("utf-8"))
    if config.get("model_type") == "gliner_streaming_span":
        raise ModelError("streaming GLiNER models keep a session between calls; they are not served")
    if config.get("precomputed_prompts_mode"):
        raise ModelError(
            "this checkpoint has its labels built in (precomputed prompts); a request could not name labels"
        )
    if config.get("decoder_mode") == "prompt" and config.get("labels_decoder"):
        raise ModelError("this checkpoint invents its labels (decoder_mode 'prompt'); a request could not name labels")
    configs: list[Any] = [config]
    configs += [json.loads(path.read_text("utf-8")) for path in folder.rglob("tokenizer_config.json")]
    for name, inside in BACKBONES.items():
        if config.get(name) and not config.get(inside):
            configs.append(PretrainedConfig.get_config_dict(config[name])[0])
    if names_code(configs):
        raise ModelError("the checkpoint's configuration names code to run (auto_map); it is not loaded")


def names_code(value: Any) -> bool:
    """Whether the configuration refers to code, at any depth."""
    if isinstance(value, dict):
        return "auto_map" in value or any(map(names_code, value.values()))
    return isinstance(value, list) and any(map(names_code, value))
