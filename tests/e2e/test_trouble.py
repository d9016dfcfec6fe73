"""What a server answers in trouble: too much to do, a client that leaves, a model process that hangs or dies."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from benchmark.server import running_server
from gliner_bento.settings import PROJECT_ROOT

BODY = {"text": "Ada Lovelace lived in London. " * 20, "labels": ["person", "city"]}
PATIENCE_S = 60


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with room for few."""
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
    command += ["--queue-capacity", "4", "--max-batch-size", "1", "--max-text-chars", "100000"]
    with running_server(command, cwd=PROJECT_ROOT, log=tmp_path_factory.mktemp("small") / "log") as url:
        yield url


def runner_process() -> psutil.Process:
    """The process of the small server that holds the model, among our own children."""
    children = psutil.Process().children(recursive=True)
    runners = [child for child in children if "GLiNERRunner" in child.cmdline()]
    (runner,) = [child for child in runners if child.environ().get("GLINER_QUEUE_CAPACITY") == "4"]
    return runner


def items_of(url: str, outcome: str) -> float:
    text = httpx.get(f"{url}/metrics", timeout=30).text
    counted = re.search(rf'gliner_items_total{{outcome="{outcome}"}} (\S+)', text)
    return float(counted.group(1)) if counted else 0.0


def test_a_full_queue_refuses_and_serves_the_others(small_server):
    with httpx.Client(base_url=small_server, timeout=60) as client, ThreadPoolExecutor(48) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/extract", json=BODY), range(96)))
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "queue_full"
    assert refused.headers["retry-after"] == "1"


def test_a_client_that_leaves_takes_its_work_along(small_server):
    before = items_of(small_server, "aborted")
    slow = {"texts": [BODY["text"] * 10] * 4, "labels": BODY["labels"]}
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{small_server}/v1/extract/batch", json=slow, timeout=httpx.Timeout(30, read=0.02))
        pytest.fail("the batch was answered before its client could leave")
    give_up = time.monotonic() + PATIENCE_S
    while items_of(small_server, "aborted") == before and time.monotonic() < give_up:
        time.sleep(0.05)
    assert items_of(small_server, "aborted") > before


def test_a_model_process_that_hangs_costs_a_request_its_deadline(small_server):
    runner = runner_process()
    os.kill(runner.pid, signal.SIGSTOP)
    try:
        answer = httpx.post(f"{small_server}/v1/extract", json=BODY | {"timeout_ms": 200}, timeout=60)
        ready = httpx.get(f"{small_server}/readyz", timeout=60)
    finally:
        os.kill(runner.pid, signal.SIGCONT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")


def test_a_model_process_that_dies_comes_back(small_server):
    os.kill(runner_process().pid, signal.SIGKILL)
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        answer = httpx.post(f"{small_server}/v1/extract", json=BODY | {"timeout_ms": 5000}, timeout=60)
        if answer.status_code == 200:
            break
        assert answer.json()["error"]["code"] in {"deadline_exceeded", "not_ready"}
    assert answer.status_code == 200
