"""From a hub id to files: what is downloaded, and what is said if it cannot be."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub import COMMIT, HubServer, cached_folder, hub_environment, hub_server

pytestmark = pytest.mark.long

COMPLETE = {"encoder_config": {"model_type": "bert"}, "model_name": "one/backbone"}
TEXTS = {"gliner_config.json": json.dumps(COMPLETE).encode(), "tokenizer_config.json": b"{}", "tokenizer.json": b"{}"}
WEIGHTS = {"model.safetensors": b"weights", "pytorch_model.bin": b"pickled"}
SHARDS = {
    "pytorch_model-1-of-1.bin": b"",
    "pytorch_model.bin.index.json": b'{"weight_map": {"a": "pytorch_model-1-of-1.bin"}}',
}
REPOSITORIES: dict[str, dict[str, bytes]] = {
    "one/both": TEXTS | WEIGHTS | {"README.md": b"", "onnx/model.onnx": b"graph", "onnx/model.onnx_data": b"tensors"},
    "one/pickled": TEXTS | {"pytorch_model.bin": b"pickled", "training_args.bin": b"", "flax_model.msgpack": b""},
    "one/sharded": TEXTS | SHARDS,
    "one/graphs": TEXTS | {"onnx/model.onnx": b"graph", "onnx/model_quantized.onnx": b"graph"},
    "one/backbone": {"config.json": b"{}", "spm.model": b"", "model.safetensors": b"", "onnx/config.json": b"{}"},
    "one/needy": {"gliner_config.json": b'{"model_name": "one/backbone"}', "model.safetensors": b"weights"},
    "one/orphan": {"gliner_config.json": b'{"model_name": "one/none"}', "model.safetensors": b"weights"},
    "one/coded": {"gliner_config.json": b'{"model_name": "one/evil"}', "model.safetensors": b"weights"},
    "one/evil": {"config.json": b'{"auto_map": {"AutoModel": "evil.Evil"}}', "tokenizer.json": b"{}"},
    "one/other": {"config.json": b"{}"},
    "one/gated": TEXTS | WEIGHTS,
    "one/broken": TEXTS | WEIGHTS,
}
PLACE = "where the hub can be reached, run `gliner-bento models fetch {} -o FOLDER`, then serve FOLDER"


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with hub_server(REPOSITORIES) as server:
        yield server


def find(tmp_path: Path, endpoint: str, *models: str, offline: bool = False, **settings: Any) -> list[dict[str, Any]]:
    """The output of `find_program.py` for each model; downloads are kept in `tmp_path` for the next call."""
    run = subprocess.run(
        [sys.executable, Path(__file__).parent / "find_program.py", json.dumps(settings), *models],
        capture_output=True,
        text=True,
        check=True,
        env=hub_environment(endpoint, tmp_path, offline=offline),
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_safetensors_are_downloaded_if_there_are_any_and_what_is_missing_is_reported(
    tmp_path: Path, hub: HubServer
) -> None:
    models = ["both", "pickled", "sharded", "needy", "graphs", "none", "gated", "broken", "orphan", "other", "coded"]
    found = dict(zip(models, find(tmp_path, hub.endpoint, *(f"one/{name}" for name in models)), strict=True))
    cache = tmp_path / "hub"
    assert found["both"]["files"] == sorted([*TEXTS, "README.md", "model.safetensors"])
    assert found["pickled"]["files"] == sorted([*TEXTS, "pytorch_model.bin"])
    assert found["sharded"]["files"] == sorted([*TEXTS, *SHARDS])
    assert found["needy"]["files"] == ["gliner_config.json", "model.safetensors"]
    backbone = cache / "models--one--backbone" / "snapshots" / COMMIT
    assert sorted(path.name for path in backbone.iterdir()) == ["config.json", "spm.model"]
    assert found["graphs"]["error"] == (
        "'one/graphs' has only ONNX files; set runtime=onnxruntime and onnx_model_file to one of onnx/model.onnx, "
        "onnx/model_quantized.onnx"
    )
    assert found["none"]["error"] == (
        f"'one/none' is no folder and is not in the cache {cache}, and cannot be downloaded "
        f"({hub.endpoint} has no such model; if it is private, set token or HF_TOKEN); {PLACE.format('one/none')}"
    )
    assert f"accept its conditions at {hub.endpoint}/one/gated, and set token or HF_TOKEN" in found["gated"]["error"]
    assert found["broken"]["error"].startswith(f"'one/broken' cannot be downloaded to {cache}: 403 Forbidden")
    assert found["orphan"]["error"].startswith(
        "'one/orphan' lacks the configuration and tokenizer of its backbone 'one/none', "
        f"which is not in the cache {cache}"
    )
    assert found["other"]["error"] == "'one/other' is no GLiNER checkpoint: it has no gliner_config.json"
    assert "auto_map" in found["coded"]["error"]
    assert not any("\n" in answer.get("error", "") for answer in found.values())


def test_a_hub_id_with_its_prefix_is_never_a_folder(tmp_path: Path, hub: HubServer) -> None:
    """The working directory has models/demo."""
    downloaded, same_name, root = find(tmp_path, hub.endpoint, "hub:one/both", "hub:models/demo", "hub:/")
    assert "model.safetensors" in downloaded["files"]
    assert "'models/demo' is no folder and is not in the cache" in same_name["error"]
    assert root["error"] == "'/' is no hub id (owner/name)"


def test_revision_token_and_cache_dir_are_huggingface_hubs(tmp_path: Path, hub: HubServer) -> None:
    given = {"token": "hf_secret", "cache_dir": str(tmp_path / "elsewhere")}
    [gated] = find(tmp_path, hub.endpoint, "one/gated", revision="v1", **given)
    [no_revision] = find(tmp_path, hub.endpoint, "one/gated", revision="v2", **given)
    assert "model.safetensors" in gated["files"]
    assert (tmp_path / "elsewhere" / "models--one--gated" / "refs" / "v1").is_file()
    assert not (tmp_path / "hub").exists()
    assert hub.tokens == {"Bearer hf_secret"}
    assert f"({hub.endpoint} has no revision 'v2' of it)" in no_revision["error"]
    assert "hf_secret" not in no_revision["error"]


def test_for_an_onnx_file_no_weights_are_downloaded(tmp_path: Path, hub: HubServer) -> None:
    [both] = find(tmp_path, hub.endpoint, "one/both", onnx_file="onnx/model.onnx")
    assert both["files"] == sorted([*TEXTS, "README.md", "onnx/model.onnx", "onnx/model.onnx_data"])


def test_offline_downloads_are_served_and_others_refused_in_one_line(tmp_path: Path, hub: HubServer) -> None:
    assert "files" in find(tmp_path, hub.endpoint, "one/needy")[0]
    cached_folder(tmp_path / "hub", "one/part").mkdir(parents=True)
    (tmp_path / "hub" / "models--one--part" / "snapshots" / COMMIT / "gliner_config.json").write_text("{}")
    requests = len(hub.requests)
    needy, pickled, part = find(tmp_path, hub.endpoint, "one/needy", "one/pickled", "one/part", offline=True)
    assert needy["files"] == ["gliner_config.json", "model.safetensors"]
    assert pickled["error"] == (
        f"'one/pickled' is no folder and is not in the cache {tmp_path / 'hub'}, and cannot be downloaded "
        f"(HF_HUB_OFFLINE is set); {PLACE.format('one/pickled')}"
    )
    assert part["error"].startswith(f"'one/part' has no weights in the cache {tmp_path / 'hub'}, and cannot be downl")
    assert len(hub.requests) == requests


def test_a_hub_that_does_not_answer_is_asked_once_and_given_up(tmp_path: Path) -> None:
    """Once for a model and its backbone; what was downloaded before is served."""
    folder = cached_folder(tmp_path / "hub", "one/needy")
    folder.mkdir(parents=True)
    for name, content in REPOSITORIES["one/needy"].items():
        (folder / name).write_bytes(content)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        [needy] = find(tmp_path, endpoint, "one/needy")
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # it was asked once
            silent.accept()
    assert "lacks the configuration and tokenizer of its backbone 'one/backbone'" in needy["error"]
    assert f"({endpoint} cannot be reached: " in needy["error"]
    assert needy["error"].endswith(PLACE.format("one/needy"))
    assert needy["seconds"] < 60, "a few, on a machine that is not busy"
