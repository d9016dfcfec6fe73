"""Reads the tensors of weights, in every format that is served. Never unpickles code."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from gliner_bento.engine.checkpoint.find import ModelError, WeightFiles
from gliner_bento.errors import one_line

Tensors = Mapping[str, torch.Tensor]

_LFS_POINTER = b"version https://git-lfs"
# In torch's error: the class or function that a pickle needs.
_GLOBAL = re.compile(r"GLOBAL:? (?:GLOBAL )?([\w.]+)", re.IGNORECASE)


def read_weights(weights: WeightFiles) -> Tensors:
    """The tensors of the files, read without a conversion."""
    return read_pickled(weights.files) if weights.pickled else read_safetensors(weights.files)


def read_safetensors(files: Iterable[Path]) -> dict[str, torch.Tensor]:
    """The tensors of all files, memory-mapped. A file's metadata may give its tensors further names."""
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        refuse_pointer(path)
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                inside = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
                aliases = file.metadata() or {}
        except Exception as error:
            raise damaged(path, error) from error
        tensors |= inside | {alias: inside[name] for alias, name in aliases.items() if name in inside}
    return tensors


def read_pickled(files: Iterable[Path]) -> dict[str, torch.Tensor]:
    """The tensors of all files that torch.save wrote, memory-mapped where the format allows it."""
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        refuse_pointer(path)
        zipped = zipfile.is_zipfile(path)
        try:
            if zipped:
                _verify_checksums(path)
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
        except pickle.UnpicklingError as error:
            raise _refused(path, error) from error
        except Exception as error:
            raise damaged(path, error) from error
        tensors |= _tensors_of(path, content)
    return tensors


def _tensors_of(path: Path, content: Any) -> dict[str, torch.Tensor]:
    entries = content.items() if isinstance(content, Mapping) else ()
    named = {name: value for name, value in entries if isinstance(value, torch.Tensor)}
    if not named:
        raise ModelError(f"{path} contains a {type(content).__name__}, not named tensors; save model.state_dict()")
    return named


def _verify_checksums(path: Path) -> None:
    """Verify the checksums of torch's zip format; torch itself does not. Raises ValueError."""
    with zipfile.ZipFile(path) as file:
        if any(entry.CRC for entry in file.infolist()) and (damaged_entry := file.testzip()):
            raise ValueError(f"wrong checksum of {damaged_entry}")


def refuse_pointer(path: Path) -> None:
    """Raise ModelError for a file that git-lfs has not fetched."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_LFS_POINTER))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    if head == _LFS_POINTER:
        raise ModelError(f"{path} is a pointer of Git LFS, not the weights; run `git lfs pull` in its folder")


def _refused(path: Path, error: Exception) -> ModelError:
    """The error for a file that needs more than tensors."""
    wanted = _GLOBAL.search(str(error))
    if wanted is None:
        return damaged(path, error)
    return ModelError(
        f"{path} is refused: unpickling it needs {wanted[1]}, and only tensors are loaded, because a pickle may run "
        "code; save model.state_dict(), or ask its publisher for safetensors"
    )


def damaged(path: Path, error: Exception) -> ModelError:
    """The error for a file that cannot be read."""
    return ModelError(f"{path} cannot be loaded, it is damaged or incomplete ({one_line(error)}); download it again")
