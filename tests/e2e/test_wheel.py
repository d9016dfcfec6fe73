"""The wheel: what it holds, and that it serves in an empty folder, with the model inside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from benchmark.server import running_server
from gliner_bento.settings import PROJECT_ROOT

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "docs", "tests")
MODEL = ("README.md", "gliner_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    project = shutil.copytree(PROJECT_ROOT, tmp_path_factory.mktemp("build") / "project", ignore=NOT_COPIED)
    pip("wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", cwd=project)
    [wheel] = (project / "wheels").iterdir()
    return wheel


def pip(*arguments: str, cwd: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_wheel_holds_only_what_serves_and_the_bundled_model(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name) for name in archive.namelist()}
    [information] = {file.parts[0] for file in files if file.parts[0].endswith(".dist-info")}
    assert {file.parts[0] for file in files} == {information, "gliner_bento", "runners", "service.py"}
    packaged = {file.as_posix() for file in files if file.parts[0] != information}
    folders = (PROJECT_ROOT / "gliner_bento", PROJECT_ROOT / "runners")
    sources = {path.relative_to(PROJECT_ROOT).as_posix() for folder in folders for path in folder.rglob("*.py")}
    files = folders[0].rglob("gateway/pages/**/*")
    pages = {page.relative_to(PROJECT_ROOT).as_posix() for page in files if page.is_file()}
    model = {f"gliner_bento/models/demo/{name}" for name in MODEL}
    assert packaged == {"service.py", "gliner_bento/py.typed", *sources, *pages, *model}


def test_an_installed_wheel_serves_the_bundled_model_in_an_empty_folder(wheel, tmp_path):
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    pip("install", "--no-deps", "--no-compile", "--target", str(site), str(wheel), cwd=empty)
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [str(site / "bin" / "gliner-bento"), "serve", "--port", "{port}", "--host", "127.0.0.1"]
    with running_server(command, cwd=empty, log=tmp_path / "log", env=environment) as url:
        served = httpx.get(f"{url}/v1/model", timeout=60).json()
        request = {"text": "Bill Gates founded Microsoft in 1975.", "labels": ["person", "organization"]}
        answer = httpx.post(f"{url}/v1/extract", json=request, timeout=60).json()
    assert served["model"] == "demo"
    assert {entity["text"] for entity in answer["entities"]} >= {"Bill Gates", "Microsoft"}
    assert not any(empty.iterdir())
