"""The checkpoints that are on this machine. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gliner_bento.engine.checkpoint.find import ModelError, find_weights
from gliner_bento.engine.checkpoint.hub import cached_folders
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.storage.other_models import CONFIG, OTHER_CONFIG, config_name

__all__ = ["CheckpointOptions", "FoundCheckpoint", "find_checkpoints", "size_of"]


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """model: the value for `--model`. weights: the name of their file or index, "onnx" if there are only ONNX files, or
    "none". bytes: the size of the weights."""

    model: str
    folder: str
    weights: str
    bytes: int


def find_checkpoints(folders: list[Path], options: CheckpointOptions) -> list[FoundCheckpoint]:
    """The checkpoints in folders and their subfolders, and in the hub's cache."""
    found = {str(path.parent): path.parent for folder in folders for path in sorted(folder.rglob(CONFIG))}
    found |= cached_folders(options.cache_dir, CONFIG)
    candidates = {str(path.parent): path.parent for folder in folders for path in sorted(folder.rglob(OTHER_CONFIG))}
    candidates |= cached_folders(options.cache_dir, OTHER_CONFIG)
    found |= {model: folder for model, folder in candidates.items() if model not in found and config_name(folder)}
    checkpoints = []
    for model, folder in found.items():
        try:
            weights = find_weights(folder, model)
        except ModelError:
            onnx_files = sorted(folder.rglob("*.onnx"))
            weights_name = "onnx" if onnx_files else "none"
            checkpoints.append(FoundCheckpoint(model, str(folder), weights_name, size_of(onnx_files)))
        else:
            checkpoints.append(FoundCheckpoint(model, str(folder), weights.name, size_of(weights.files)))
    return checkpoints


def size_of(files: Iterable[Path]) -> int:
    """The total size of the files, in bytes."""
    return sum(path.stat().st_size for path in files)
