"""Rules of `.github/workflows`: `make` targets that exist, actions pinned by their commit, least permissions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .places import ROOT

_USES = re.compile(r"^\s*(?:- )?uses: (\S+)(.*)$", re.MULTILINE)
_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
_TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")
_DECLARED = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def files(root: Path = ROOT) -> list[Path]:
    """The workflows."""
    return sorted((root / ".github" / "workflows").glob("*.yml"))


def problems(root: Path = ROOT) -> Iterator[str]:
    """A line for each break of a rule."""
    declared = set(_DECLARED.findall((root / "Makefile").read_text(encoding="utf-8")))
    for file in files(root):
        text = file.read_text(encoding="utf-8")
        for action, comment in _USES.findall(text):
            if not action.startswith("./") and not (_PINNED.fullmatch(action) and re.match(r" # v\d", comment)):
                yield f"{file.name}: {action} is not pinned by a commit, with its version behind it"
        for target in _TARGET.findall(text):
            if target not in declared:
                yield f"{file.name}: the Makefile has no target {target}"
        if not re.search(r"^permissions: \{\}$", text, re.MULTILINE):
            yield f"{file.name}: the workflow's own permissions are not empty; a job names those that it needs"
