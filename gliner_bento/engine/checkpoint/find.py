"""The files of a checkpoint's folder: its configuration and its weights, checked before they are loaded.

A configuration that names code (`auto_map`) is refused, because gliner passes configurations to transformers with
`trust_remote_code=True`. Does not download, and imports no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from stat import S_ISREG
from typing import Any, NamedTuple

from gliner_bento.errors import StartupError, one_line
from gliner_bento.storage.other_models import CONFIG, OTHER_CONFIG, config_name, is_gliclass

# Names of weights, in order of preference. If the weights are in several files, an index (.index.json) lists them.
SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"
FORMATS = (SAFETENSORS, f"{SAFETENSORS}.index.json", PICKLED, f"{PICKLED}.index.json")

HUB = "hub:"
"""Prefix of a hub id that is never taken for a folder or an archive of this machine."""
WHOLE = "folder:"
"""Prefix of a folder that holds all parts of its checkpoint: none may come from the hub, or from another folder."""

# Match the keys of configurations that count modules, each with tensors of its own.
_COUNTS_MODULES = re.compile(r"layer|depth|block|expert|group")

# Least values of whole numbers in gliner_config.json that may be absent. gliner itself checks no types, and is in an
# endless loop if `max_len` is negative.
_LEAST = {"max_len": 1, "max_width": 1, "max_types": 0, "class_token_index": -1, "rel_token_index": -1}
_MAY_BE_NULL = ("max_types", "rel_token_index")
_MARKERS = ("ent_token", "sep_token")

GLINER2_MAX_WORDS = 512
"""Maximum words of a pass if a GLiNER2 model's configuration has no `max_len`; the package gliner2 has no limit."""


class ModelError(StartupError):
    """The model cannot be served; the message says why, in one line, for the operator."""


class Backbone(NamedTuple):
    """Where a checkpoint stores a backbone's configuration (a key of gliner_config.json) and tokenizer (a folder).

    What is missing comes from the hub id or folder that gliner_config.json names."""

    config_key: str
    tokenizer_folder: str


BACKBONES = {
    "model_name": Backbone("encoder_config", "."),
    "labels_encoder": Backbone("labels_encoder_config", "labels_tokenizer"),
    "labels_decoder": Backbone("labels_decoder_config", "decoder_tokenizer"),
}
"""The backbones, by the key of gliner_config.json that holds their hub id or folder."""


def stays_inside(location: str) -> bool:
    """Whether `location` is a relative path that does not leave its folder, on any operating system."""
    paths = PurePosixPath(location), PureWindowsPath(location)
    return bool(location) and not any(path.anchor or ".." in path.parts for path in paths)


def is_file(path: Path) -> bool:
    """Whether `path` is an existing file. Raises ModelError if that cannot be determined."""
    try:
        return S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


def config_of(folder: Path) -> Path | None:
    """The file of a checkpoint's configuration; None if the folder has none. Raises ModelError if it cannot be read."""
    try:
        name = config_name(folder)
    except OSError as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error.strerror}") from error
    return folder / name if name else None


def read_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's configuration. Raises ModelError if there is none."""
    return read_json(config_of(folder) or folder / CONFIG)


def is_gliner2(folder: Path) -> bool:
    """Whether the folder holds a GLiNER2 checkpoint."""
    config = config_of(folder)
    return config is not None and config.name == OTHER_CONFIG and not is_gliclass(folder)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelError if the file cannot be read, or contains something else."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object")
    return content


def configs_in(folder: Path) -> list[dict[str, Any]]:
    """The configurations of a checkpoint and of its parts, at any depth of its folder. Raises ModelError."""
    return [read_json(path) for name in ("config.json", CONFIG) for path in folder.rglob(name)]


def check_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's configuration. Raises ModelError for a kind of model that is not served, and if a configuration
    in the folder names code."""
    config = read_config(folder)
    if not is_gliclass(folder):
        check_values(config, may_be_null=("max_len", *_MAY_BE_NULL) if is_gliner2(folder) else _MAY_BE_NULL)
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
    read_by_transformers = ("tokenizer_config.json", "config.json")
    config_files = [path for name in read_by_transformers for path in folder.rglob(name)]
    refuse_code([config, *map(read_json, config_files)])
    return config


def check_values(config: Mapping[str, Any], may_be_null: Collection[str] = _MAY_BE_NULL) -> None:
    """Raises ModelError for a value of a configuration, gliner's or gliner2's, that no model can have."""
    for name, least in _LEAST.items():
        value = config.get(name, least)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not (value is None and name in may_be_null) and not (is_number and value >= least):
            raise ModelError(f"{name} is {json.dumps(value)}; it must be a whole number, {least} or more")
    for name in _MARKERS:
        if not isinstance(value := config.get(name, name), str) or not value.strip():
            raise ModelError(f"{name} is {json.dumps(value)}; it must be a text")


def refuse_code(configs: list[dict[str, Any]]) -> None:
    """Raises ModelError if a configuration has `auto_map`, at any depth."""
    if _names_code(configs):
        raise ModelError("the checkpoint's configuration names code to run (auto_map); it is not loaded")


def _names_code(value: Any) -> bool:
    return any("auto_map" in each for each in _objects(value))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All JSON objects in `value`, at any depth."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for inside in value.values() if isinstance(value, dict) else value:
            yield from _objects(inside)


def refuse_untrue(configs: list[dict[str, Any]], tensors: int) -> None:
    """Raises ModelError if a configuration names a further model, or has more layers than there are tensors.

    Called before a model that the operator has not chosen is built: transformers would fetch the backbone of an image
    model from the hub, and building a million layers takes hours even without memory. tensors: number in the weights.
    """
    for config in _objects(configs):
        if isinstance(config.get("backbone"), str):
            raise ModelError("the checkpoint's configuration names a further model (backbone); it is not loaded")
        for key, value in config.items():
            if isinstance(value, int | float) and _COUNTS_MODULES.search(key) and value > tensors:
                raise ModelError(f"{key} is {value}, but the weights have {tensors} tensors")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The files of a checkpoint's weights. name: the name of the only file, or of the index."""

    name: str
    files: tuple[Path, ...]

    @property
    def pickled(self) -> bool:
        """Whether torch.save wrote the files; else they are safetensors."""
        return self.name.startswith(PICKLED)


def find_weights(folder: Path, model: str) -> WeightFiles:
    """The weights in a folder. Raises ModelError if there are none."""
    for name in FORMATS:
        if is_file(folder / name):
            files = _indexed(folder / name) if name.endswith(".json") else (folder / name,)
            return WeightFiles(name, files)
    raise no_weights(model, (path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx")))


def no_weights(model: str, files: Iterable[str]) -> ModelError:
    """The error for a checkpoint whose `files` include no weights; names the ONNX file to use, if there is one."""
    onnx_files = sorted(file for file in files if file.endswith(".onnx"))
    if not onnx_files:
        return ModelError(f"{model!r} has no weights: none of {', '.join(FORMATS)}, and no ONNX file")
    if onnx_files == ["model.onnx"]:
        return ModelError(f"{model!r} has only model.onnx; set runtime=onnxruntime")
    return ModelError(
        f"{model!r} has only ONNX files; set runtime=onnxruntime and onnx_model_file to one of {', '.join(onnx_files)}"
    )


def _indexed(index: Path) -> tuple[Path, ...]:
    """The files that an index lists. Raises ModelError if one is missing, or not in the index's folder."""
    entries = read_json(index).get("weight_map")
    if not isinstance(entries, dict) or not entries or not all(isinstance(name, str) for name in entries.values()):
        raise ModelError(f"{index} has no weight_map")
    names = sorted(set(entries.values()))
    if not all(map(stays_inside, names)):
        raise ModelError(f"{index} names a file that is not in its folder; it is not loaded")
    if missing := [name for name in names if not is_file(index.parent / name)]:
        raise ModelError(
            f"{index.parent} lacks {listed(missing)}, which {index.name} names; download the checkpoint again"
        )
    return tuple(index.parent / name for name in names)


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first `most` names in alphabetical order, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {more} more" if more > 0 else "")
