"""Writes a self-contained checkpoint to a folder: safetensors, and the backbones' configurations and tokenizers."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from gliner_bento.engine.checkpoint.card import CARD
from gliner_bento.engine.checkpoint.find import SAFETENSORS, ModelError, config_of
from gliner_bento.engine.checkpoint.resolve import Checkpoint, find_checkpoint
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.errors import one_line

__all__ = ["CheckpointOptions", "ModelError", "fetch"]


def fetch(model: str, folder: Path, options: CheckpointOptions) -> int:
    """Write the checkpoint of a hub id or a folder to the new or empty `folder`; returns the weights' size in bytes.

    The folder appears complete or not at all. Raises ModelError.
    """
    folder = folder.expanduser().absolute()
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ModelError(f"{folder} exists and is not an empty folder")
        checkpoint = find_checkpoint(model, options)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            complete = Path(temporary, "checkpoint")
            _write(checkpoint, complete)
            os.replace(complete, folder)
    except OSError as error:
        raise ModelError(f"{folder} cannot be written: {one_line(error)}") from error
    return (folder / SAFETENSORS).stat().st_size


def _write(checkpoint: Checkpoint, folder: Path) -> None:
    # Imported here because importing torch takes seconds, and a missing model is reported without it.
    from gliner_bento.engine.checkpoint.load import build, common_dtype, load_weights  # noqa: PLC0415
    from gliner_bento.engine.checkpoint.weights import read_weights  # noqa: PLC0415

    weights = checkpoint.weights()
    loaded, tensors = build(checkpoint, lambda: read_weights(weights))
    load_weights(loaded.model, tensors, weights.name)
    if dtype := common_dtype(tensors):
        loaded.model.to(dtype)
    try:
        loaded.save_pretrained(folder, safe_serialization=True)
    except Exception as error:  # safetensors has its own errors for a full disk
        raise ModelError(f"the checkpoint cannot be written: {one_line(error)}") from error
    if (card := checkpoint.folder / CARD).is_file():
        copyfile(card, folder / CARD)
    config = config_of(folder)
    assert config is not None
    (folder / SAFETENSORS).chmod(config.stat().st_mode)  # safetensors makes it readable only for its owner
