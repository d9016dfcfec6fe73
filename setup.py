"""Puts the bundled model into wheels; git holds it once, in models/demo. All else is in pyproject.toml.

The wheel for clients (tools/wheel) has neither the model nor the site that a server has at /docs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

MODEL = Path("models", "demo")
SITE = Path("gateway", "pages", "docs")


class BuildWithModel(build_py):
    """An editable package needs no copy: it reads the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib, "gliner_bento")
        if os.environ.get("GLINER_BENTO_WHEEL") == "client":
            shutil.rmtree(package / SITE, ignore_errors=True)
        else:
            shutil.copytree(MODEL, package / MODEL, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithModel})
