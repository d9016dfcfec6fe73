"""Puts the bundled model into wheels; git holds it once, in models/demo. All else is in pyproject.toml."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

MODEL = Path("models", "demo")


class BuildWithModel(build_py):
    """An editable package needs no copy: it reads the checkout. A wheel for clients (tools/wheel) has no model."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and os.environ.get("GLINER_BENTO_WHEEL") != "client":
            shutil.copytree(MODEL, Path(self.build_lib, "gliner_bento", MODEL), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithModel})
