"""Two instances of the bundled model behind one endpoint, as in a container: one is killed, and nobody notices."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from processes import BENTO
from quick import ENVIRONMENT
from saved_adapters import BODY, put, scores, zipped

from benchmark.server import Server, started, tree_of
from gliner_bento.settings import PROJECT_ROOT

CONCURRENT = 32
REQUESTS = 160
PATIENCE_S = 240.0
LONG = {"texts": [BODY["text"] * 100] * 60, "labels": BODY["labels"], "request_id": "long"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """In a container BentoML would start nothing again."""
    folder = tmp_path_factory.mktemp("fleet")
    settings = {"num_instances": 2, "dtype": "float32", "enable_lora": True, "disk_cache_dir": folder / "cache"}
    settings["request_timeout_s"] = 300
    env = ENVIRONMENT | {f"GLINER_{name.upper()}": str(value) for name, value in settings.items()}
    with started(BENTO, cwd=PROJECT_ROOT, log=folder / "log", env={**env, "BENTOML_CONTAINERIZED": "true"}) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            wait_for(client, ["ready", "ready"])
        yield server


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=240) as client:
        yield client


def replicas(http: httpx.Client) -> list[dict]:
    return http.get("/v1/replicas").raise_for_status().json()["replicas"]


def wait_for(http: httpx.Client, states: list[str]) -> None:
    latest_s = time.monotonic() + PATIENCE_S
    while [one["state"] for one in replicas(http)] != states:
        assert time.monotonic() < latest_s, replicas(http)
        time.sleep(0.1)


def runners(server: Server) -> list[psutil.Process]:
    processes = [one for one in tree_of(server.pid) if any("GLiNERRunner" in word for word in one.cmdline())]
    return sorted(processes, key=lambda one: one.cmdline())


def test_requests_are_divided_and_cores_too(server: Server, http: httpx.Client) -> None:
    before = [one["requests"] for one in replicas(http)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: http.post("/v1/extract", json=BODY), range(24)))
    assert {answer.status_code for answer in answers} == {200}
    sent = [one["requests"] - earlier for one, earlier in zip(replicas(http), before, strict=True)]
    assert sum(sent) == 24
    assert min(sent) > 0
    assert len(runners(server)) == 2
    assert http.get("/v1/model").json()["family"] == "UniEncoderSpanRelexGLiNER"


def test_an_adapter_is_on_both(http: httpx.Client, adapters: dict[str, Path]) -> None:
    assert put(http, "tenant-a", zipped(adapters["one"])).status_code == 201
    assert [one["resident_adapters"] for one in replicas(http)] == [["tenant-a"]] * 2
    expected = scores(http, "tenant-a")
    assert expected != scores(http)
    body = BODY | {"adapter_id": "tenant-a"}
    before = [one["requests"] for one in replicas(http)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: scores(http, "tenant-a"), range(32)))
    for answer in answers:
        assert answer == pytest.approx(expected, abs=1e-4)
    assert min(one["requests"] - earlier for one, earlier in zip(replicas(http), before, strict=True)) > 0
    http.delete("/v1/adapters/tenant-a").raise_for_status()
    assert {http.post("/v1/extract", json=body).status_code for _ in range(4)} == {404}


def test_an_abort_reaches_both(http: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(http.post, "/v1/extract/batch", json=LONG)
        latest_s = time.monotonic() + PATIENCE_S
        while min(one["outstanding_tokens"] for one in replicas(http)) == 0:
            assert time.monotonic() < latest_s
        assert http.post("/v1/requests/long/abort").json()["aborted"] is True
        results = asked.result().json()["results"]
    aborted = [place for place, one in enumerate(results) if one["error"] and one["error"]["code"] == "aborted"]
    assert aborted
    assert min(aborted) < len(results) / 2 < max(aborted), "each half was on one instance"


def test_a_killed_instance_costs_nobody_an_answer_and_comes_back(server: Server, http: httpx.Client) -> None:
    """Runs last: the killed instance counts as a restart."""
    expected = http.post("/v1/extract", json=BODY).json()["entities"]
    victim = runners(server)[0]
    with ThreadPoolExecutor(CONCURRENT) as pool:
        asked = [pool.submit(http.post, "/v1/extract", json=BODY) for _ in range(REQUESTS)]
        while not any(one.done() for one in asked):
            time.sleep(0.001)
        victim.send_signal(signal.SIGKILL)
        wait_for(http, ["suspect", "ready"])  # until it has started again
        metrics = http.get("/metrics").text
        answers = [one.result() for one in asked]
    assert [answer.status_code for answer in answers] == [200] * REQUESTS
    for answer in answers:
        entities = answer.json()["entities"]
        assert [(one["text"], one["label"]) for one in entities] == [(one["text"], one["label"]) for one in expected]
        assert [one["score"] for one in entities] == pytest.approx([one["score"] for one in expected], abs=1e-4)
    assert 'gliner_replicas{state="suspect"} 1.0' in metrics
    assert http.get("/readyz").status_code == 200
    assert re.search(r"gliner_repeated_items_total [1-9]", http.get("/metrics").text)
    wait_for(http, ["ready", "ready"])
    assert victim.pid not in [one.pid for one in runners(server)]


def test_more_instances_than_cores_end_the_start_with_one_line() -> None:
    """Before a process has been started for each."""
    command = [sys.executable, "-c", "import service"]
    env = os.environ | {"GLINER_NUM_INSTANCES": "64", "GLINER_DEVICE": "cpu"}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("gliner-bento: num_instances: 64 instances need as many cores")
