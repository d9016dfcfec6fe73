"""gliner-bento: a server for GLiNER models. See docs/architecture.md for an overview."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"


def load(model: str | None = None, **settings: Any) -> Any:
    """A `LoadedModel`: a model in this process, without a server. Takes seconds.

    model: a hub id or a folder; default: that of the settings. settings: as the flags of `gliner-bento serve`. Raises
    `SettingsError`, `StartupError`, ImportError without the extra `serve`.

        with gliner_bento.load("models/demo", dtype="float32") as model:
            print(model.extract("Ada Lovelace lived in London.", ["person", "city"]).entities)
    """
    try:
        loaded = import_module("gliner_bento.process.loaded")  # torch: only who calls this needs it
    except ModuleNotFoundError as missing:
        from gliner_bento.errors import install_hint  # noqa: PLC0415

        raise ImportError(f"gliner_bento.load needs {missing.name}; {install_hint('serve')}") from None
    return loaded.load(model, **settings)
