"""Servers with one `disk_cache_dir`: those of one base model share adapters, one of another model sees none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from on_a_socket import on_a_socket
from safetensors.torch import load_file, save_file
from saved_adapters import BODY, error_of, ids, put, scores, zipped

from gliner_bento.asgi import create_app
from gliner_bento.settings import PROJECT_ROOT, Settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replicas")


@contextmanager
def server_of(folder: Path, **settings: Any) -> Iterator[httpx.Client]:
    """A client of a server in this process; each has its own model, gateway and event loop."""
    fixed = {"disk_cache_dir": folder / "cache", "enable_lora": True, "dtype": "float32"}
    app = create_app(Settings(**fixed, self_test=False, batch_invariant=False, warmup_iterations=0, **settings))
    with on_a_socket(app, lifespan="on") as url, httpx.Client(base_url=url, timeout=240) as client:
        yield client


@pytest.fixture(scope="module")
def replicas(folder: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with server_of(folder) as one, server_of(folder) as other:
        yield one, other


def test_replicas_agree(replicas: tuple[httpx.Client, httpx.Client], adapters: dict[str, Path]) -> None:
    one, other = replicas
    assert put(one, "tenant-a", zipped(adapters["one"])).status_code == 201
    answers = scores(one, "tenant-a")
    assert answers == pytest.approx(scores(other, "tenant-a"), abs=1e-5)
    assert put(other, "tenant-a", zipped(adapters["one"])).status_code == 200
    assert put(other, "tenant-a", zipped(adapters["two"])).status_code == 409
    one.put("/v1/adapters/tenant-a?pinned=true").raise_for_status()
    assert other.get("/v1/adapters/tenant-a").json()["pinned"] is True

    other.delete("/v1/adapters/tenant-a").raise_for_status()
    for replica in replicas:
        assert replica.post("/v1/extract", json=BODY | {"adapter_id": "tenant-a"}).status_code == 404
        assert replica.get("/v1/adapters").json() == {"adapters": []}

    assert put(other, "tenant-a", zipped(adapters["two"])).status_code == 201
    for replica in replicas:
        assert scores(replica, "tenant-a") != answers, "nobody answers with what is in memory still"


@pytest.fixture
def other_model(folder: Path) -> Path:
    """A checkpoint that every adapter of the bundled model fits: only a few weights differ."""
    model = folder / "other-model"
    shutil.copytree(PROJECT_ROOT / "models" / "demo", model)
    weights = load_file(model / "model.safetensors")
    name = next(name for name in weights if name.endswith("query.weight"))
    weights[name] = -weights[name]
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    return model


def test_a_server_of_another_model_sees_no_adapter_and_deletes_none(
    replicas: tuple[httpx.Client, httpx.Client],
    adapters: dict[str, Path],
    folder: Path,
    other_model: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    one = replicas[0]
    put(one, "tenant-b", zipped(adapters["one"])).raise_for_status()
    expected, shared = scores(one, "tenant-b"), ids(one)
    with server_of(folder, model=str(other_model)) as other:
        fingerprints = [http.get("/v1/model").json()["fingerprint"] for http in (one, other)]
        assert fingerprints[0] != fingerprints[1]
        assert f"adapters: 0 in {folder / 'cache' / fingerprints[1]}" in caplog.messages
        assert error_of(other.get("/v1/adapters/tenant-b")) == (404, "adapter_not_found", "adapter_id")
        assert ids(other) == set()
        assert put(other, "tenant-b", zipped(adapters["two"])).status_code == 201
        assert scores(other, "tenant-b") != scores(other)
        other.delete("/v1/adapters/tenant-b").raise_for_status()
    assert ids(one) == shared
    assert scores(one, "tenant-b") == pytest.approx(expected, abs=1e-5)


def test_an_adapter_is_replaced_on_every_replica_where_the_request_says_so(
    replicas: tuple[httpx.Client, httpx.Client], adapters: dict[str, Path]
) -> None:
    one, other = replicas
    put(one, "tenant-c", zipped(adapters["one"])).raise_for_status()
    before = scores(other, "tenant-c")
    assert error_of(put(other, "tenant-c", zipped(adapters["two"]))) == (409, "conflict", "adapter_id")
    assert put(other, "tenant-c", zipped(adapters["two"]), replace=True).status_code == 200
    for replica in replicas:
        assert scores(replica, "tenant-c") != before
        assert replica.get("/v1/adapters/tenant-c").json()["rank"] == 8
