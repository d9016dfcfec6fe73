"""The built bento: what it holds, and that it serves from the store, in an empty folder, with the model inside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import patient
import pytest
from quick import ENVIRONMENT

from benchmark.server import running_server
from gliner_bento.settings import PROJECT_ROOT

REQUEST = {
    "text": "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond.",
    "labels": ["person", "organization", "date", "location"],
    "relations": ["founded", "founded in", "headquartered in"],
}


@pytest.fixture(scope="module")
def tag() -> str:
    """Of the bento that `make bento` builds, in BentoML's store."""
    bill = [sys.executable, "tools/dependencies.py", "sbom", "sbom.cdx.json"]
    subprocess.run(bill, cwd=PROJECT_ROOT, check=True)
    return bentoml("build", "--output", "tag", str(PROJECT_ROOT)).splitlines()[-1].removeprefix("__tag__:")


def bentoml(*arguments: str) -> str:
    ended = subprocess.run([sys.executable, "-m", "bentoml", *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.strip()


def test_a_bento_holds_only_what_serves(tag):
    source = Path(bentoml("get", tag, "--output", "path")) / "src"
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert {file.parts[0] for file in files} == {
        *("LICENSE", "README.md", "configuration.yaml", "gliner_bento", "models", "pyproject.toml", "runners"),
        *("sbom.cdx.json", "service.py", "bentofile.yaml"),  # BentoML adds the latter
    }
    assert {file.as_posix() for file in files if file.parts[0] == "models"} == {
        f"models/demo/{name}"
        for name in ("README.md", "gliner_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }
    folders = [PROJECT_ROOT / name for name in ("gliner_bento", "runners")]
    sources = {path.relative_to(PROJECT_ROOT) for folder in folders for path in folder.rglob("*") if path.is_file()}
    wanted = {file for file in sources if "__pycache__" not in file.parts}
    assert {file for file in files if file.parts[0] in ("gliner_bento", "runners")} == wanted


def test_an_image_takes_the_cpu_build_of_torch_unless_a_build_argument_names_another(tag):
    dockerfile = Path(bentoml("get", tag, "--output", "path"), "env", "docker", "Dockerfile").read_text(
        encoding="utf-8"
    )
    declared = dockerfile.index("ARG UV_TORCH_BACKEND=cpu\nENV UV_TORCH_BACKEND=$UV_TORCH_BACKEND\n")
    assert declared < dockerfile.index("uv --directory $INSTALL_ROOT pip install")


def test_a_built_bento_answers_from_an_empty_folder(tag, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [sys.executable, "-m", "bentoml", "serve", tag, "--port", "{port}", "--host", "127.0.0.1"]
    with running_server(command, cwd=empty, log=tmp_path / "log", env=ENVIRONMENT) as url:
        answer = patient.post(f"{url}/v1/extract", json=REQUEST).json()
        assert {e["text"] for e in answer["entities"]} >= {"Bill Gates", "Microsoft"}
        assert {(r["head"]["text"], r["relation"]) for r in answer["relations"]} >= {("Bill Gates", "founded")}
        statuses = {patient.post(f"{url}/v1/extract", json=REQUEST).status_code for _ in range(150)}
        assert statuses == {200}
