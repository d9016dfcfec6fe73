"""The documentation by version: FOLDER/VERSION, FOLDER/latest, and a first page that leads to the latest."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

from .places import ROOT, version

BUILT = ROOT / "gliner_bento" / "gateway" / "pages" / "docs"
_INDEX = """<!doctype html><meta charset="utf-8"><title>gliner-bento</title>
<meta http-equiv="refresh" content="0; url=latest/index.html"><h1>gliner-bento</h1>
<ul>{rows}</ul>
"""


def publish(folder: Path, built: Path = BUILT) -> Path:
    """Put the built site into the folder, beside the versions that it has. Raises ValueError if it is not built.

    Returns the version's folder. `latest` is the highest version: a patch of an older one does not replace it.
    """
    if not (built / "index.html").is_file():
        raise ValueError("there is no site: run `make docs`")
    target = folder / version()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(built, target)
    found = sorted((one.name for one in folder.iterdir() if _numbers(one.name)), key=_numbers, reverse=True)
    if found[0] == target.name:
        shutil.rmtree(folder / "latest", ignore_errors=True)
        shutil.copytree(built, folder / "latest")
    rows = "".join(f'<li><a href="{name}/index.html">{html.escape(name)}</a></li>' for name in ("latest", *found))
    (folder / "index.html").write_text(_INDEX.format(rows=rows), encoding="utf-8")
    (folder / "versions.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    return target


def _numbers(name: str) -> list[int]:
    """The numbers of a version; none for another name."""
    parts = name.split(".")
    return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else []
