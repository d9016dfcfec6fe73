"""The wheel: what it holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from gliner_bento.settings import PROJECT_ROOT

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "*.safetensors")


def test_a_wheel_holds_only_what_serves(tmp_path):
    project = shutil.copytree(PROJECT_ROOT, tmp_path / "project", ignore=NOT_COPIED)  # a build leaves files behind
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels"]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = (project / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name) for name in archive.namelist()}
    [information] = {file.parts[0] for file in files if file.parts[0].endswith(".dist-info")}
    assert {file.parts[0] for file in files} == {information, "gliner_bento", "runners", "service.py"}
    packaged = {file.as_posix() for file in files if file.parts[0] != information}
    folders = (PROJECT_ROOT / "gliner_bento", PROJECT_ROOT / "runners")
    sources = {path.relative_to(PROJECT_ROOT).as_posix() for folder in folders for path in folder.rglob("*.py")}
    pages = {f"gliner_bento/gateway/pages/{page.name}" for page in folders[0].glob("gateway/pages/*")}
    assert packaged == {"service.py", "gliner_bento/py.typed", *sources, *pages}
