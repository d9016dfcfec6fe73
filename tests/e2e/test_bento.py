"""The built bento: what it holds, and that it serves from the store, in an empty folder, with the model inside it."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import patient
import pytest
import yaml
from quick import ENVIRONMENT

from benchmark.server import started
from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.storage.api_keys import hash_of

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
        *("LICENSE", "NOTICE", "README.md", "configuration.yaml", "gliner_bento", "models", "pyproject.toml"),
        *("runners", "sbom.cdx.json", "service.py", "bentofile.yaml"),  # BentoML adds the latter
    }
    model = ("README.md", "gliner_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    assert {file.as_posix() for file in files if file.parts[0] == "models"} == {
        "models/NOTICE",
        *(f"models/demo/{name}" for name in model),
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


@pytest.fixture(scope="module")
def served(tag, tmp_path_factory) -> Iterator[httpx.Client]:
    """A client, with a key, of the bento as it is served from an empty folder, with TLS by BentoML's settings."""
    folder, empty = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("empty")
    key, certificate, configuration = (folder / name for name in ("key.pem", "cert.pem", "configuration.yaml"))
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    tls = {"enabled": True, "certfile": str(certificate), "keyfile": str(key)}
    configuration.write_text(yaml.safe_dump({"services": {"GLiNERService": {"ssl": tls}}}))
    keys = json.dumps([{"name": "a", "sha256": hash_of("key")}])
    env = ENVIRONMENT | {"GLINER_CONFIG": str(configuration), "GLINER_API_KEYS": keys}
    command = [sys.executable, "-m", "bentoml", "serve", tag, "--port", "{port}", "--host", "127.0.0.1"]
    with started(command, cwd=empty, log=folder / "log", env=env, ready="ready on https://127.0.0.1:") as server:
        url, trusted = server.url.replace("http:", "https:"), ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(
            base_url=url, verify=trusted, timeout=patient.TIMEOUT_S, headers={"X-API-Key": "key"}
        ) as http:
            yield http


needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make a certificate")


@needs_openssl
def test_a_built_bento_answers_from_an_empty_folder(served):
    answer = served.post("/v1/extract", json=REQUEST).json()
    assert {e["text"] for e in answer["entities"]} >= {"Bill Gates", "Microsoft"}
    assert {(r["head"]["text"], r["relation"]) for r in answer["relations"]} >= {("Bill Gates", "founded")}
    statuses = {served.post("/v1/extract", json=REQUEST).status_code for _ in range(150)}
    assert statuses == {200}


@needs_openssl
def test_bentomls_settings_for_tls_work(served):
    assert served.get("/livez").status_code == 200
    assert served.get("/v1/model", headers={"X-API-Key": ""}).json()["error"]["code"] == "unauthorized"
    with pytest.raises(httpx.ConnectError, match="certificate"):
        patient.get(f"{served.base_url}/livez")
