"""The labels of an image (OCI's annotations): what it was built of, and when."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .places import ROOT, names, version

_PREFIX = "org.opencontainers.image"


def labels(root: Path = ROOT) -> Mapping[str, str]:
    """The labels by name. The time is the commit's, or SOURCE_DATE_EPOCH: two builds of a commit have the same."""
    known = names(root)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct") or 0)
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    about = {
        "created": created.isoformat().replace("+00:00", "Z"),
        "documentation": f"{known['docs']}/{version(root)}/",
        "revision": _git(root, "rev-parse", "HEAD"),
        "source": known["repository"],
        "url": known["repository"],
        "vendor": known["owner"],
        "version": version(root),
    }
    return {f"{_PREFIX}.{name}": value for name, value in about.items() if value}


def _git(root: Path, *arguments: str) -> str:
    """What git prints; nothing where there is no repository."""
    ended = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else ""
