"""Recognizes models of other kinds that are mistaken for GLiNER checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

OTHER_CONFIG = "config.json"
MAX_TOKENS = 1024
"""Of labels and text in GLiClass, by default."""
_KINDS = {"extractor": "a GLiNER2"}
"""By `model_type` of config.json."""


def is_gliclass(folder: Path) -> bool:
    """Whether a folder holds a GLiClass checkpoint."""
    return _model_type(folder) == "GLiClass"


def no_checkpoint(folder: Path) -> str:
    """Why a folder without gliner_config.json is not served; names the model that its config.json describes."""
    reason = "no GLiNER checkpoint: it has no gliner_config.json"
    if (kind := _model_type(folder)) is None:
        return reason
    model = f"{_KINDS[kind]} model, which is not served" if kind in _KINDS else "another kind of model"
    return f"{reason}; its config.json describes {model} (model_type {kind!r})"


def _model_type(folder: Path) -> str | None:
    """What config.json says; None without one."""
    try:
        return str(json.loads((folder / OTHER_CONFIG).read_text("utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
