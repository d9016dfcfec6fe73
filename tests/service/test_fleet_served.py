"""Two instances of the bundled model behind one endpoint, as in a container: one is killed, and nobody notices."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import patient
import psutil
import pytest
from processes import BENTO
from quick import ENVIRONMENT
from saved_adapters import BODY
from two_replicas import assert_adapters_are_on_both, assert_an_abort_reaches_both, assert_divided, replicas
from waiting import wait_until

from benchmark.server import Server, started, tree_of
from gliner_bento.settings import PROJECT_ROOT

CONCURRENT = 32
REQUESTS = 160


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


def wait_for(http: httpx.Client, states: list[str]) -> None:
    wait_until(lambda: [one["state"] for one in replicas(http)] == states, every_s=0.1, state=lambda: replicas(http))


def runners(server: Server) -> list[psutil.Process]:
    processes = [one for one in tree_of(server.pid) if any("GLiNERRunner" in word for word in one.cmdline())]
    return sorted(processes, key=lambda one: one.cmdline())


def test_requests_are_divided(server: Server, http: httpx.Client) -> None:
    assert_divided(http)
    assert len(runners(server)) == 2


def test_an_adapter_is_on_both(http: httpx.Client, adapters: dict[str, Path]) -> None:
    assert_adapters_are_on_both(http, adapters)


def test_an_abort_reaches_both(http: httpx.Client) -> None:
    assert_an_abort_reaches_both(http, [BODY["text"] * 100] * 60, BODY["labels"])


def test_a_killed_instance_costs_nobody_an_answer_and_comes_back(server: Server, http: httpx.Client) -> None:
    """Runs last: the killed instance counts as a restart."""
    expected = http.post("/v1/extract", json=BODY).json()["entities"]
    victim = runners(server)[0]
    with ThreadPoolExecutor(CONCURRENT) as pool:
        asked = [pool.submit(http.post, "/v1/extract", json=BODY) for _ in range(REQUESTS)]
        wait_until(lambda: any(one.done() for one in asked))
        victim.send_signal(signal.SIGKILL)
        suspect = 'gliner_replicas{model="demo",state="suspect"} 1.0'
        wait_until(lambda: suspect in http.get("/metrics").text)  # it is, until it has started again
        answers = [one.result() for one in asked]
    assert [answer.status_code for answer in answers] == [200] * REQUESTS
    for answer in answers:
        entities = answer.json()["entities"]
        assert [(one["text"], one["label"]) for one in entities] == [(one["text"], one["label"]) for one in expected]
        assert [one["score"] for one in entities] == pytest.approx([one["score"] for one in expected], abs=1e-4)
    patient.until_ready(server.url)
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
