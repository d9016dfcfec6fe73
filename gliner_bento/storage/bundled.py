"""Where the bundled model is: in a checkout and a bento the folder models/demo, elsewhere data of the distribution
gliner-bento-demo."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

BUNDLED = "models/demo"
"""The value of the setting `model` that names it."""


def installed_models() -> Path | None:
    """The package of gliner-bento-demo, whose folder `demo` is the model; None if it is not installed."""
    package = find_spec("gliner_bento_demo")
    return Path(package.origin).parent if package and package.origin else None


def models_below(root: Path) -> Path | None:
    """The folder `models` of a checkout or a bento, else that of the installed package; None if neither is there."""
    return root / "models" if (root / BUNDLED).is_dir() else installed_models()
