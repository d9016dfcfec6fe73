"""The description for the package index: the README with links that lead to this version in the repository.

All else is in pyproject.toml. Standard library and setuptools only.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)")


def described() -> str:
    """The README for a reader who does not have the repository."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    package = (ROOT / "gliner_bento" / "__init__.py").read_text(encoding="utf-8")
    repository = re.search(r'^Repository = "(.+)"', project, re.MULTILINE)
    version = re.search(r'^__version__ = "(.+)"', package, re.MULTILINE)
    assert repository
    assert version

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1].endswith((".webp", ".png", ".svg")) else "blob"
        return f"{repository[1]}/{kind}/v{version[1]}/{link[1]}"

    return _LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


setup(long_description=described(), long_description_content_type="text/markdown")
