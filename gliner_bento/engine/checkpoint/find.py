"""What a checkpoint's folder holds, checked before anything of it is loaded. Knows no hub, and imports no torch.

No configuration may name code (`auto_map`), because gliner passes configurations to transformers with
`trust_remote_code=True`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from stat import S_ISREG
from typing import Any, NamedTuple

from gliner_bento.errors import StartupError, one_line
from gliner_bento.storage.other_models import CONFIG, GLINER2_CONFIG, config_name, is_gliclass

# In order of preference. An index names the files of weights in several files.
SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"
FORMATS = (SAFETENSORS, f"{SAFETENSORS}.index.json", PICKLED, f"{PICKLED}.index.json")

GLINER2_MAX_WORDS = 512
"""Of a pass of a GLiNER2 model whose configuration has no `max_len`: the package has no limit."""


class ModelError(StartupError):
    """The model cannot be served; the message says why, in one line, for the operator."""


class Backbone(NamedTuple):
    """Where a checkpoint keeps what it needs of a backbone: the key of its configuration, the folder of its tokenizer.
    Without these, both come from the hub id or folder that the configuration names."""

    config_key: str
    tokenizer_folder: str


BACKBONES = {
    "model_name": Backbone("encoder_config", "."),
    "labels_encoder": Backbone("labels_encoder_config", "labels_tokenizer"),
    "labels_decoder": Backbone("labels_decoder_config", "decoder_tokenizer"),
}
"""By the key of gliner_config.json that names it."""


def is_beside(location: str) -> bool:
    """Whether a relative `location` stays in its folder, on any operating system."""
    paths = PurePosixPath(location), PureWindowsPath(location)
    return bool(location) and not any(path.anchor or ".." in path.parts for path in paths)


def is_file(path: Path) -> bool:
    """Whether it exists. Raises ModelError where that may not be known."""
    try:
        return S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


def config_of(folder: Path) -> Path | None:
    """The file with a checkpoint's configuration, if the folder has one. Raises ModelError where that may not be
    known."""
    try:
        name = config_name(folder)
    except OSError as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error.strerror}") from error
    return folder / name if name else None


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a folder that has one."""
    return read_json(config_of(folder) or folder / CONFIG)


def is_gliner2(folder: Path) -> bool:
    """Whether the folder holds a GLiNER2 checkpoint."""
    config = config_of(folder)
    return config is not None and config.name == GLINER2_CONFIG and not is_gliclass(folder)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in a file. Raises ModelError."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object")
    return content


def check_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's configuration. Raises ModelError if it names code, or a kind of model that is not served."""
    config = read_config(folder)
    if is_gliner2(folder) and config.get("architecture") not in (None, "span", "boundary"):
        raise ModelError(
            f"this GLiNER2 checkpoint has the architecture {config['architecture']!r}; span and boundary are served"
        )
    if config.get("model_type") == "gliner_streaming_span":
        raise ModelError("streaming GLiNER models keep a session between calls; they are not served")
    if config.get("precomputed_prompts_mode"):
        raise ModelError(
            "this checkpoint has its labels built in (precomputed prompts); a request could not name labels"
        )
    if config.get("decoder_mode") == "prompt" and config.get("labels_decoder"):
        raise ModelError("this checkpoint invents its labels (decoder_mode 'prompt'); a request could not name labels")
    read_by_tokenizers = [path for name in ("tokenizer_config.json", "config.json") for path in folder.rglob(name)]
    refuse_code([config, *map(read_json, read_by_tokenizers)])
    return config


def refuse_code(configs: list[dict[str, Any]]) -> None:
    """Raises ModelError if a configuration refers to code."""
    if _names_code(configs):
        raise ModelError("the checkpoint's configuration names code to run (auto_map); it is not loaded")


def _names_code(value: Any) -> bool:
    """Whether the configuration refers to code, at any depth."""
    if isinstance(value, dict):
        return "auto_map" in value or any(map(_names_code, value.values()))
    return isinstance(value, list) and any(map(_names_code, value))


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """name: of the file, or of the index."""

    name: str
    files: tuple[Path, ...]

    @property
    def pickled(self) -> bool:
        """Whether the files are torch.save's, not safetensors."""
        return self.name.startswith(PICKLED)


def find_weights(folder: Path, model: str) -> WeightFiles:
    """The weights in a folder. Raises ModelError if there are none."""
    for name in FORMATS:
        if is_file(folder / name):
            files = _indexed(folder / name) if name.endswith(".json") else (folder / name,)
            return WeightFiles(name, files)
    raise no_weights(model, (path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx")))


def no_weights(model: str, files: Iterable[str]) -> ModelError:
    """What to do with a checkpoint that has only `files`."""
    graphs = sorted(file for file in files if file.endswith(".onnx"))
    if not graphs:
        return ModelError(f"{model!r} has no weights: none of {', '.join(FORMATS)}, and no ONNX file")
    if graphs == ["model.onnx"]:
        return ModelError(f"{model!r} has only model.onnx; set runtime=onnxruntime")
    return ModelError(
        f"{model!r} has only ONNX files; set runtime=onnxruntime and onnx_model_file to one of {', '.join(graphs)}"
    )


def _indexed(index: Path) -> tuple[Path, ...]:
    """The files that an index names."""
    mapped = read_json(index).get("weight_map")
    if not isinstance(mapped, dict) or not mapped or not all(isinstance(name, str) for name in mapped.values()):
        raise ModelError(f"{index} has no weight_map")
    names = sorted(set(mapped.values()))
    if not all(map(is_beside, names)):
        raise ModelError(f"{index} names a file that is not in its folder; it is not loaded")
    if missing := [name for name in names if not is_file(index.parent / name)]:
        raise ModelError(f"{index.parent} lacks {listed(missing)}, which {index.name} names; download it again")
    return tuple(index.parent / name for name in names)


def listed(names: Iterable[str], most: int = 5) -> str:
    """A few names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {more} more" if more > 0 else "")
