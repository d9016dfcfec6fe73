"""Two servers with one `disk_cache_dir`: what one of them is given, pins or deletes, both serve, tell or refuse."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from test_adapter_api import BODY, adapters, put, scores, zipped

from benchmark.server import running_server
from gliner_bento.settings import PROJECT_ROOT

__all__ = ["adapters"]


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    folder = tmp_path_factory.mktemp("replicas")
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--dtype", "float32"]
    command += ["--enable-lora", "--warmup-iterations", "0", "--disk-cache-dir", str(folder / "cache")]
    with ExitStack() as stack:
        urls = [
            stack.enter_context(running_server(command, cwd=PROJECT_ROOT, log=folder / f"log{number}"))
            for number in range(2)
        ]
        one, other = (stack.enter_context(httpx.Client(base_url=url, timeout=120)) for url in urls)
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
