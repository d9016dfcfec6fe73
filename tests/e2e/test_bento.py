"""The built bento: served from the store, in an empty folder, with the model inside it."""

from __future__ import annotations

import subprocess
import sys

import httpx

from gliner_bento.benchmark.server import running_server
from gliner_bento.settings import PROJECT_ROOT

REQUEST = {
    "text": "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond.",
    "labels": ["person", "organization", "date", "location"],
    "relations": ["founded", "founded in", "headquartered in"],
}


def test_a_built_bento_answers_from_an_empty_folder(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "bentoml", "build", "--output", "tag", str(PROJECT_ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    tag = built.stdout.strip().splitlines()[-1].removeprefix("__tag__:")
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [sys.executable, "-m", "bentoml", "serve", tag, "--port", "{port}", "--host", "127.0.0.1"]
    with running_server(command, cwd=empty, log=tmp_path / "log") as url:
        answer = httpx.post(f"{url}/v1/extract", json=REQUEST, timeout=60).json()
        assert {e["text"] for e in answer["entities"]} >= {"Bill Gates", "Microsoft"}
        assert {(r["head"]["text"], r["relation"]) for r in answer["relations"]} >= {("Bill Gates", "founded")}
        statuses = {httpx.post(f"{url}/v1/extract", json=REQUEST, timeout=60).status_code for _ in range(150)}
        assert statuses == {200}
