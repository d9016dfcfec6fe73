"""The checkpoints that are on this machine. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gliner_bento.engine.checkpoint.find import ModelError, find_weights
from gliner_bento.engine.checkpoint.hub import cached_folders
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.storage.other_models import CONFIG, GLINER2_CONFIG, config_name

__all__ = ["CheckpointOptions", "FoundCheckpoint", "find_checkpoints", "size_of"]


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """model: what `--model` takes. bytes: of its files of weights."""

    model: str
    folder: str
    weights: str
    bytes: int


def find_checkpoints(folders: list[Path], options: CheckpointOptions) -> list[FoundCheckpoint]:
    """The checkpoints in folders and their subfolders, and in the hub's cache."""
    there = {str(path.parent): path.parent for folder in folders for path in sorted(folder.rglob(CONFIG))}
    there |= cached_folders(options.cache_dir, CONFIG)
    others = {str(path.parent): path.parent for folder in folders for path in sorted(folder.rglob(GLINER2_CONFIG))}
    others |= cached_folders(options.cache_dir, GLINER2_CONFIG)
    there |= {model: folder for model, folder in others.items() if model not in there and config_name(folder)}
    found = []
    for model, folder in there.items():
        try:
            weights = find_weights(folder, model)
        except ModelError:
            graphs = sorted(folder.rglob("*.onnx"))
            found.append(FoundCheckpoint(model, str(folder), "onnx" if graphs else "none", size_of(graphs)))
        else:
            found.append(FoundCheckpoint(model, str(folder), weights.name, size_of(weights.files)))
    return found


def size_of(files: Iterable[Path]) -> int:
    """Bytes of all of them."""
    return sum(path.stat().st_size for path in files)
