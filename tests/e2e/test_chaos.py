"""`make chaos` in a short form: faults from which a server recovers immediately, and its end under load."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
from quick import ENVIRONMENT, UNCHECKED

from benchmark.server import started
from gliner_bento.settings import PROJECT_ROOT
from reliability.chaos import chaos
from reliability.commands import kill_bulk, lie_to_redact

QUICK = {**UNCHECKED, "hang_timeout_s": 60, "shutdown_timeout_s": 120}  # a slow machine is no failure


def test_faults_cost_no_wrong_answer_and_no_request_hangs(tmp_path: Path) -> None:
    names = ["bad-clients", "out-of-memory", "full-disk", "not-finite", "damaged-adapter", "clock-jumps", "sigterm"]
    measured = chaos(
        tmp_path / "log", faults=names[::-1], seconds=0.5, clients=4, different=12, settings=QUICK, out=tmp_path
    )
    reports = measured.facts["faults"]
    assert measured.met, measured.page()
    assert reports.keys() == set(names)
    assert list(reports)[-1] == "sigterm", "the server ends with it"
    assert json.loads((tmp_path / "chaos-part.json").read_text())["faults"].keys() == set(names)
    assert all(report["right"] for report in reports.values())
    assert not reports["bad-clients"]["errors"]
    assert reports["full-disk"]["said"] == "5 uploads got 507 storage_full"
    assert reports["sigterm"]["lasted_s"] < 100, "it does not wait for its limit"


@pytest.mark.slow
def test_bulk_continues_after_kills(server: str) -> None:
    """With the bundled model; tests/unit/bulk/test_bulk_killed.py kills it at more records, without one."""
    assert kill_bulk(server) == "bulk killed after 50 and 100 of 130 records: the same bytes"


def test_redact_trusts_no_false_answer(server: str) -> None:
    assert lie_to_redact(server) == "11 kinds of false answers: no copy"


def test_a_stream_that_cannot_finish_before_the_end_gets_a_last_line(tmp_path: Path) -> None:
    """In the plain ASGI app, which ends in time too. Nor can a request of which only a part has arrived."""
    command = [sys.executable, "-m", "uvicorn", "gliner_bento.asgi:create_app", "--factory", "--port", "{port}"]
    command += ["--http", "gliner_bento.gateway.http_protocol:HttpProtocol"]
    env = ENVIRONMENT | {"GLINER_SHUTDOWN_TIMEOUT_S": "8", "GLINER_REQUEST_TIMEOUT_S": "300"}
    env |= {"GLINER_INFERENCE_LANES": "1", "GLINER_TORCH_THREADS": "1"}  # it computes for seconds: a core is enough
    env["GLINER_BODY_TIMEOUT_S"] = "300"
    body = {"text": "Ada Lovelace lived in London. " * 30_000, "labels": ["person", "city"]}
    with (
        started(command, cwd=PROJECT_ROOT, log=tmp_path / "log", env=env) as server,
        socket.create_connection(("127.0.0.1", httpx.URL(server.url).port)) as incomplete,
    ):
        incomplete.settimeout(240)
        incomplete.sendall(b"POST /v1/extract HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        with httpx.stream("POST", f"{server.url}/v1/extract/stream", json=body, timeout=120) as answer:
            lines = answer.iter_lines()
            assert "entity" in json.loads(next(lines))
            os.kill(server.pid, signal.SIGTERM)
            began_s = time.monotonic()
            *_, last = lines
        assert json.loads(last)["error"]["code"] == "not_ready"
        assert incomplete.recv(2**16).startswith(b"HTTP/1.1 503 ")
        process = psutil.Process(server.pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() - began_s < 240
            time.sleep(0.05)
