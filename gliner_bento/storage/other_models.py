"""Recognizes models of other kinds that are mistaken for GLiNER checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

_KINDS = {"extractor": "a GLiNER2", "GLiClass": "a GLiClass"}
"""Names for messages, by `model_type` of config.json."""


def no_checkpoint(folder: Path) -> str:
    """Why a folder without gliner_config.json is not served; names the model that its config.json describes."""
    reason = "no GLiNER checkpoint: it has no gliner_config.json"
    try:
        kind = str(json.loads((folder / "config.json").read_text("utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return reason
    model = f"{_KINDS[kind]} model, which is not served" if kind in _KINDS else "another kind of model"
    return f"{reason}; its config.json describes {model} (model_type {kind!r})"
