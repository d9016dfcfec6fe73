"""Converts pickled weights to safetensors once, in a folder that processes share.

    conversion_cache_dir/<key>-<sha256 of this file>.safetensors    written as .converting-<key> and renamed
    conversion_cache_dir/lock                                       held while a file is written

The key depends only on the content of the source files: for torch's zip format, on the checksums of the tensors; for
other formats, on a hash of each file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from gliner_bento.engine.checkpoint.find import ModelError, WeightFiles
from gliner_bento.engine.checkpoint.weights import Tensors, read_pickled, read_safetensors, read_weights
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.errors import one_line
from gliner_bento.storage.files import file_lock, sha256, sync

logger = logging.getLogger(__name__)

_FORMAT_VERSION = "1"


def read_converted(weights: WeightFiles, options: CheckpointOptions) -> Tensors:
    """The tensors of weights; pickled weights are converted first if `options.convert` is set."""
    if weights.pickled and options.convert:
        return _Cache(options.conversion_cache_dir).read(weights)
    return read_weights(weights)


class _Cache:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, weights: WeightFiles) -> Tensors:
        """The converted tensors, or the pickled ones if the folder cannot be used."""
        key = _key(weights)
        converted = self._find(key)
        if converted is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                with file_lock(self._folder / "lock"):
                    converted = self._find(key)
                    if converted is None:
                        return self._convert(key, weights)
            except OSError as error:
                _warn(weights, self._folder, error)
                return read_pickled(weights.files)
        logger.info("%s is loaded from its conversion %s", weights.name, converted)
        return read_safetensors([converted])

    def _find(self, key: str) -> Path | None:
        """The undamaged converted file of a key; None if there is none."""
        for path in self._folder.glob(f"{key}-*.safetensors"):
            try:
                if path.stem == f"{key}-{sha256(path)}":
                    return path
            except OSError as error:
                logger.warning("%s cannot be read: %s", path, one_line(error))
            else:
                logger.warning("%s is damaged and is not used", path)
        return None

    def _convert(self, key: str, weights: WeightFiles) -> Tensors:
        """Write the converted file of a key, with the lock held. Returns the tensors even if they cannot be written."""
        for stale in (*self._folder.glob(".converting-*"), *self._folder.glob(f"{key}-*.safetensors")):
            stale.unlink()
        started_s = time.monotonic()
        tensors = read_pickled(weights.files)
        temporary = self._folder / f".converting-{key}"
        try:
            unique, aliases = without_aliases(tensors)
            save_file(unique, temporary, metadata={"format": "pt", **aliases})
            sync(temporary)
            path = self._folder / f"{key}-{sha256(temporary)}.safetensors"
            os.replace(temporary, path)
            logger.info("%s is converted to %s in %.1f s", weights.name, path, time.monotonic() - started_s)
        except Exception as error:
            _warn(weights, self._folder, error)
        finally:
            temporary.unlink(missing_ok=True)
        return tensors


def _warn(weights: WeightFiles, folder: Path, error: Exception) -> None:
    logger.warning(
        "%s cannot be converted to %s (%s) and is loaded as it is; see conversion_cache_dir, --no-convert",
        weights.name,
        folder,
        one_line(error),
    )


def _key(weights: WeightFiles) -> str:
    try:
        contents = [_FORMAT_VERSION, *map(_content_id, weights.files)]
    except OSError as error:
        raise ModelError(f"{error.filename} cannot be read: {error.strerror}") from error
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:32]


def _content_id(path: Path) -> str:
    """A string that is equal for files with equal content."""
    try:
        with zipfile.ZipFile(path) as file:
            entries = [(entry.filename, entry.file_size, entry.CRC) for entry in file.infolist()]
    except zipfile.BadZipFile:
        entries = []
    has_checksums = any(checksum for _, _, checksum in entries)
    return repr(entries) if has_checksums else sha256(path)


def without_aliases(tensors: Tensors) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors without duplicates, as safetensors requires, and for each removed name, the name that is kept.

    A tensor is copied if it is only a part of a memory block, as are the weights of an LSTM that was on a GPU, or if it
    is another view of a kept tensor.
    """
    unique: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    name_of_view: dict[tuple[object, ...], str] = {}
    taken = set[int]()  # memory blocks of kept tensors, which were not copied
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()
        view = (memory.data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and view in name_of_view:
            aliases[name] = name_of_view[view]
            continue
        name_of_view[view] = name
        is_whole = tensor.is_contiguous() and memory.nbytes() == tensor.nbytes and memory.data_ptr() not in taken
        if is_whole:
            taken.add(memory.data_ptr())
        unique[name] = tensor if is_whole else tensor.clone(memory_format=torch.contiguous_format)
    return unique, aliases
