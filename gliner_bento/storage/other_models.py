"""The kind of model that a folder holds: a checkpoint that is served, or a model of another kind."""

from __future__ import annotations

import json
from pathlib import Path

CONFIG = "gliner_config.json"
OTHER_CONFIG = "config.json"
"""The configuration file of GLiNER2, GLiClass and all other models."""
GLICLASS_TOKENS = 1024
"""GLiClass's default for the maximum number of tokens of labels and text together."""
_GLINER2, _GLICLASS = "extractor", "GLiClass"
"""Values of `model_type` in config.json."""


def config_name(folder: Path) -> str | None:
    """The name of a checkpoint's configuration file (GLiNER, else GLiNER2 or GLiClass); None if the folder has none.

    Raises OSError if the folder may not be read."""
    try:
        (folder / CONFIG).stat()
    except (FileNotFoundError, NotADirectoryError):
        return OTHER_CONFIG if _model_type(folder) in (_GLINER2, _GLICLASS) else None
    return CONFIG


def no_checkpoint(folder: Path) -> str:
    """Why a folder without gliner_config.json is not served, with the `model_type` of its config.json."""
    reason = "no GLiNER checkpoint: it has no gliner_config.json"
    if (kind := _model_type(folder)) is None:
        return reason
    return f"{reason}; its config.json describes another kind of model (model_type {kind!r})"


def is_gliclass(folder: Path) -> bool:
    """Whether a folder holds a GLiClass checkpoint."""
    return _model_type(folder) == _GLICLASS


def _model_type(folder: Path) -> str | None:
    """`model_type` of config.json; None if there is none."""
    try:
        return str(json.loads((folder / OTHER_CONFIG).read_text("utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
