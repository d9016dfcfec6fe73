"""Fault injection: too much to do, a client that leaves, a model process that hangs or dies, a start that must fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import patient
import psutil
import pytest
from quick import ENVIRONMENT
from waiting import PATIENCE_S, wait_until

from benchmark.server import Server, started
from gliner_bento.settings import PROJECT_ROOT

BODY = {"text": "Ada Lovelace lived in London. " * 20, "labels": ["person", "city"]}
START_S = 240


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the small server writes."""
    return tmp_path_factory.mktemp("small") / "log"


@pytest.fixture(scope="module")
def small(log: Path) -> Iterator[Server]:
    """A server with room for few items, as in a container, whose model process may die once."""
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--max-restarts", "1"]
    command += ["--queue-capacity", "4", "--max-batch-size", "1", "--max-text-chars", "100000"]
    command += ["--request-timeout-s", str(START_S)]
    with started(command, cwd=PROJECT_ROOT, log=log, env={**ENVIRONMENT, "BENTOML_CONTAINERIZED": "true"}) as server:
        yield server


@pytest.fixture
def small_server(small: Server) -> str:
    """Its URL."""
    return small.url


def runner_process() -> psutil.Process:
    """The process of the small server that holds the model, among our own children."""

    def is_it(child: psutil.Process) -> bool:
        with suppress(psutil.Error):  # it has ended
            return "GLiNERRunner" in child.cmdline() and child.environ().get("GLINER_QUEUE_CAPACITY") == "4"
        return False

    (runner,) = filter(is_it, psutil.Process().children(recursive=True))
    return runner


def items_of(url: str, outcome: str) -> float:
    text = patient.get(f"{url}/metrics").text
    counted = re.search(rf'gliner_items_total{{model="demo",outcome="{outcome}"}} (\S+)', text)
    return float(counted.group(1)) if counted else 0.0


def test_a_full_queue_refuses_and_serves_the_others(small_server):
    with httpx.Client(base_url=small_server, timeout=60) as client, ThreadPoolExecutor(48) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/extract", json=BODY), range(96)))
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused.headers["retry-after"]) >= 1


def runs_something(url: str) -> bool:
    return bool(patient.get(f"{url}/v1/status").json()["queue"]["running_items"])


def test_a_client_that_leaves_takes_its_work_along(small_server):
    before = items_of(small_server, "aborted")
    slow = httpx.Request("POST", f"{small_server}/v1/extract", json=BODY | {"text": BODY["text"] * 160})
    head = "".join(f"{name}: {value}\r\n" for name, value in slow.headers.items())
    with socket.create_connection((slow.url.host, slow.url.port)) as client:
        client.sendall(f"POST /v1/extract HTTP/1.1\r\n{head}\r\n".encode() + slow.content)
        client.setblocking(False)
        while not runs_something(small_server):
            with pytest.raises(BlockingIOError):  # else it was answered before its client could leave
                client.recv(1)
    wait_until(lambda: items_of(small_server, "aborted") > before, every_s=0.05)


def test_a_model_process_that_hangs_costs_a_request_its_deadline(small_server):
    runner = runner_process()
    os.kill(runner.pid, signal.SIGSTOP)
    try:
        answer = patient.post(f"{small_server}/v1/extract", json=BODY | {"timeout_ms": 200})
        ready = patient.get(f"{small_server}/readyz")
    finally:
        os.kill(runner.pid, signal.SIGCONT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")


def test_while_a_model_process_is_dead_requests_wait_for_the_next_one(small_server):
    """It starts immediately: BentoML itself looks for dead processes every 10 s."""
    body = BODY | {"texts": [BODY["text"] * 20] * 2}
    del body["text"]
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(httpx.post, f"{small_server}/v1/extract/batch", json=body, timeout=START_S)
        while not runs_something(small_server):
            if under_way.done():  # a slow machine: it was answered before this thread saw it run
                under_way = pool.submit(httpx.post, f"{small_server}/v1/extract/batch", json=body, timeout=START_S)
        os.kill(runner_process().pid, signal.SIGKILL)
        new = patient.post(f"{small_server}/v1/extract", json=BODY)
        results = under_way.result().json()["results"]
    assert new.json()["entities"]
    assert [result["error"] for result in results] == [None, None]
    assert all(result["result"]["entities"] for result in results)


def test_a_model_process_that_dies_too_often_ends_the_server_with_one_line(small, log):
    """Runs after the test above, in which it died once. The gateway may still log that it misses the model."""
    os.kill(runner_process().pid, signal.SIGKILL)
    assert psutil.Process(small.pid).wait(PATIENCE_S) == 1
    written = log.read_text()
    assert "Traceback" not in written
    reason = "GLiNERRunner has died too often (deaths within 600 s: 2, max_restarts: 1)"
    lines = written.splitlines()
    (last,) = [number for number, line in enumerate(lines) if line.startswith(f"gliner-bento: {reason}")]
    assert all("[entry_service:GLiNERService:1]" in line for line in lines[last + 1 :])


PYTHON = [sys.executable, "-m"]
CLI = [*PYTHON, "gliner_bento.cli", "serve", "--port", "{port}"]
SERVE = [*PYTHON, "bentoml", "serve", ".", "--port", "{port}"]
UVICORN = [*PYTHON, "uvicorn", "gliner_bento.asgi:create_app", "--factory", "--port", "{port}"]


def start_fails(command: list[str], port: int = 0, **env: str) -> str:
    """What a server that cannot start writes. It ends with one line and code 1, and BentoML starts nothing again."""
    ended = subprocess.run(
        [part.format(port=port) for part in command],
        cwd=PROJECT_ROOT,
        env={**os.environ, "BENTOML_DO_NOT_TRACK": "True", "HF_HUB_OFFLINE": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=START_S,
    )
    assert ended.returncode == 1, ended.stdout
    assert "Traceback" not in ended.stdout
    assert "listening" not in ended.stdout
    assert ended.stdout.count("gliner-bento: ") == 1
    lines = [line for line in ended.stdout.splitlines() if not line.startswith("INFO:  ")]  # uvicorn's
    assert len(lines) <= 2, "more than the first line of `bentoml serve`, and the reason"
    return lines[-1].removeprefix("gliner-bento: ")


@pytest.mark.parametrize("command", [SERVE, UVICORN])
def test_a_port_that_cannot_be_bound_is_named_before_anything_is_loaded(command):
    advice = "; choose another one with --port (PORT= of make serve)"
    assert start_fails(command, port=99999) == f"port 99999: must be between 1 and 65535{advice}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert re.fullmatch(
            rf"port {port} on [0-9.]+: Address already in use{re.escape(advice)}", start_fails(command, port=port)
        )


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        ([*CLI, "--host", "0.0.0.0"], {}),
        ([*SERVE, "--host", "::"], {}),
        (SERVE, {"BENTOML_CONTAINERIZED": "true"}),
        ([*UVICORN, "--host", "0.0.0.0"], {}),
    ],
)
def test_without_keys_others_cannot_reach_a_server_unless_the_operator_says_so(command, environment):
    written = start_fails(command, **environment)
    assert re.match(r"address (0\.0\.0\.0|::): others can reach it, and there are no API keys: set api_keys ", written)
    assert "allow_anonymous" in written


@pytest.mark.parametrize("command", [SERVE, UVICORN])
def test_a_wrong_setting_ends_the_start(command):
    assert start_fails(command, GLINER_MAX_LABELS="many").startswith("max_labels: ")


def test_an_unknown_model_ends_the_start():
    assert "nobody/nothing" in start_fails([*CLI, "--model", "nobody/nothing"])


def test_a_missing_device_ends_the_start_of_a_container():
    container = {"BENTOML_CONTAINERIZED": "true", "GLINER_ALLOW_ANONYMOUS": "true"}
    written = start_fails(SERVE, GLINER_DEVICE="cuda", CUDA_VISIBLE_DEVICES="", **container)
    assert written.startswith("device 'cuda' does not exist")


def test_an_adapter_store_that_cannot_be_written_ends_the_start(tmp_path):
    (tmp_path / "file").touch()
    written = start_fails(UVICORN, GLINER_ENABLE_LORA="1", GLINER_DISK_CACHE_DIR=str(tmp_path / "file"))
    assert written.startswith(f"disk_cache_dir: adapters cannot be stored in {tmp_path}/file: ")


def test_a_model_whose_load_kills_the_process_costs_one_restart(tmp_path):
    (tmp_path / "orders").mkdir()
    shutil.copytree(PROJECT_ROOT / "models" / "demo", tmp_path / "deadly")
    order = tmp_path / "orders" / "kill_load"
    order.write_text("deadly")
    models = {"good": {"model": "models/demo"}, "deadly": {"model": str(tmp_path / "deadly")}}
    (tmp_path / "configuration.yaml").write_text(json.dumps({"gliner": {"models": models}}))
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--max-restarts", "1"]
    command += ["--config", str(tmp_path / "configuration.yaml")]
    env = {
        **ENVIRONMENT,
        "PYTHONPATH": str(PROJECT_ROOT / "reliability" / "injected"),
        "CHAOS_ORDERS": str(order.parent),
    }
    with (
        started(command, cwd=PROJECT_ROOT, log=tmp_path / "log", env=env) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client,
    ):
        listed = {one["id"]: one for one in client.get("/v1/models").json()["data"]}
        assert (listed["good"]["state"], listed["deadly"]["state"]) == ("ready", "failed")
        assert "ended with signal 9" in listed["deadly"]["reason"]
        assert patient.until_ready(server.url).text == "model deadly: failed\n"
        assert client.post("/v1/extract", json=BODY).status_code == 200
        refused = client.post("/v1/extract", json=BODY | {"model": "deadly"}).json()["error"]
        assert (refused["code"], "signal 9" in refused["message"]) == ("model_not_loaded", True)
        order.unlink()
        assert client.post("/v1/models/deadly/load").json()["state"] == "ready"
    assert (tmp_path / "log").read_text().count("restarting it") == 1


def test_make_serve_fails_with_its_server():
    """Its own environment is replaced by that of the tests, and is not that of the make that runs them."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "ARGS")
    }
    command = ["make", "serve", "SETUP=", f"BIN={Path(sys.executable).parent}", "PORT=99999"]
    ended = subprocess.run(
        command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False, timeout=START_S
    )
    assert ended.returncode != 0
    first, *rest = ended.stderr.splitlines()
    assert first.startswith("gliner-bento: port 99999: ")
    assert [line for line in rest if not re.match(r"make(\[\d+\])?: ", line)] == []
