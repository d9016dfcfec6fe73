"""The measurements of docs/measurements.md in short forms. Their targets of time are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest
from quick import FLAGS, UNCHECKED

from reliability.__main__ import main
from reliability.overload import burst
from reliability.served import serving


def measured(folder, name: str) -> dict:
    data = json.loads((folder / f"{name}.json").read_text())
    return data | {"targets": {target["name"]: target["value"] for target in data["targets"]}}


def test_many_clients_are_all_answered_as_soon_as_the_server_is_ready(tmp_path):
    patient = UNCHECKED | {"request_timeout_s": 300, "queue_wait_interval_s": 300}  # a slow machine is no failure
    with serving(tmp_path / "log", patient, {"GLINER_DISK_CACHE_DIR": str(tmp_path / "adapters")}) as server:
        run = burst(server, clients=512, requests=600)
    assert run.summary()["statuses"] == {"200": 600}


@pytest.mark.slow
def test_an_overloaded_server_accepts_or_refuses_every_request(tmp_path, capsys):
    burst = ["--clients", "64", "--requests", "128"]
    main(["overload", "--factor", "5", "--seconds", "2", *burst, "--out", str(tmp_path)])
    data = measured(tmp_path, "overload")
    assert data["targets"]["burst: refused or not answered"] == 0
    assert data["targets"]["neither accepted nor refused"] == 0
    assert data["targets"]["refusals without Retry-After"] == 0
    assert data["statuses"]["200"] > 0
    assert data["patient"]["statuses"]["200"] > 0
    assert sum(data["statuses"].get(status, 0) for status in ("200", "429", "504")) == data["requests"]
    shown = capsys.readouterr().out
    assert all(f"| {target} | " in shown for target in data["targets"])


def test_no_odd_request_gets_an_internal_error_or_no_answer(tmp_path):
    met = main(["fuzz", "--requests", "250", "--documents", "1", "--seed", "1", *FLAGS, "--out", str(tmp_path)]) == 0
    data = measured(tmp_path, "fuzz")
    assert met, data
    assert data["statuses"]["fields"].keys() > {"200", "400", "422"}


@pytest.mark.slow
def test_a_soak_loses_no_answer_and_gives_no_wrong_one(tmp_path):
    flags = ["--minutes", "0.1", "--rate", "4", "--different", "24", "--no-kill"]
    main(["soak", *flags, "--out", str(tmp_path)])
    data = measured(tmp_path, "soak")
    assert (data["targets"]["lost"], data["targets"]["wrong"]) == (0, 0), data["examples"]
    assert data["outcomes"]["right"] > 0


@pytest.mark.slow
def test_short_texts_are_answered_beside_the_worst_requests(tmp_path):
    main(["worst", "--seconds", "2", "--out", str(tmp_path)])
    data = measured(tmp_path, "worst")
    assert len(data["targets"]) == len(data["beside"]) == 4
    assert None not in data["targets"].values(), data["beside"]


@pytest.mark.slow
def test_floods_of_a_tenant_lose_none_of_its_short_texts(tmp_path):
    main(["floods", "--minutes", "0.2", "--out", str(tmp_path)])
    data = measured(tmp_path, "floods")
    assert (data["targets"]["lost"], data["targets"]["wrong"]) == (0, 0), data["beside"]
    assert all(one["short"]["right"] > 0 and one["flood"] for one in data["beside"].values())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["reliability worst", "benchmark --rows fairness"])
def test_the_server_ends_with_its_measurement(tmp_path, command):
    measuring = subprocess.Popen([sys.executable, "-m", *command.split(), "--out", str(tmp_path)])
    try:
        itself = psutil.Process(measuring.pid)
        while not (started := itself.children(recursive=True)):
            assert measuring.poll() is None
            time.sleep(0.1)
        measuring.terminate()
        assert measuring.wait(60) == 143
        _, left = psutil.wait_procs(started, timeout=10)
        assert not left
    finally:
        measuring.kill()
