"""Heartbeats of real processes, and a monitor whose time the test sets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, wait_until

from gliner_bento.process import heartbeat
from gliner_bento.process.heartbeat import HeartbeatMonitor, are_stopping
from gliner_bento.settings.configuration import PROJECT_ROOT

pytestmark = pytest.mark.long

PROCESS = """
import asyncio, sys, time
from pathlib import Path
from gliner_bento.process.heartbeat import Heartbeat

async def serve():
    heartbeat = Heartbeat(Path(sys.argv[1]), "Service")
    heartbeat.begin()
    {before}
    print("ready", flush=True)
    {then}
    await asyncio.sleep(600)

asyncio.run(serve())
"""
BLOCKS = "time.sleep(600)"
STOPS = "heartbeat.stop()"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes = []

    def start(then: str = "pass", before: str = "pass") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROCESS.format(before=before, then=then), str(tmp_path)]
        process = subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_process_whose_event_loop_is_blocked_is_killed(start: Start, tmp_path: Path, caplog) -> None:
    process = start(BLOCKS)
    monitor = HeartbeatMonitor(tmp_path, timeout_s=1.0)
    for _ in range(4):
        monitor.check(0.3)
    assert process.poll() is None
    monitor.check(0.3)
    assert process.wait(PATIENCE_S) == -9
    (record,) = caplog.records
    assert record.getMessage().startswith("Service has not responded for more than 1 s (hang_timeout_s); ")


def test_a_process_that_answers_is_left_alone(start: Start, tmp_path: Path) -> None:
    process = start()
    monitor = HeartbeatMonitor(tmp_path, timeout_s=1.0)
    (file,) = tmp_path.iterdir()
    for _ in range(3):
        monitor.check(0.5)
        before = file.read_text()
        wait_until(lambda before=before: file.read_text() != before, every_s=0.05)
        monitor.check(0.5)
    assert process.poll() is None


def test_time_in_which_the_supervisor_was_suspended_does_not_count(start: Start, tmp_path: Path) -> None:
    process = start(BLOCKS)
    monitor = HeartbeatMonitor(tmp_path, timeout_s=10.0)
    for _ in range(3):
        monitor.check(3600.0)
    assert process.poll() is None


def test_what_a_process_that_died_has_left_is_deleted_and_no_other_process_is_killed(
    start: Start, tmp_path: Path
) -> None:
    process = start(BLOCKS)
    monitor = HeartbeatMonitor(tmp_path, timeout_s=0.1)
    process.kill()
    process.wait()
    monitor.check(1.0)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ends_during_a_check_does_not_end_the_monitor(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(heartbeat, "_alive", lambda folder: iter([folder / "Service.1.deleted"]))
    HeartbeatMonitor(tmp_path, timeout_s=1.0).check(0.5)


def test_it_is_noticed_when_all_processes_have_been_asked_to_end(start: Start, tmp_path: Path) -> None:
    noticed: list[bool] = []
    monitor = HeartbeatMonitor(tmp_path, 60.0, lambda: noticed.append(True))
    first = start()
    start(before=STOPS)
    monitor.check(1.0)
    monitor.check(1.0)
    assert sorted(are_stopping(tmp_path)) == [False, True]
    assert sorted(are_stopping(tmp_path, "Service")) == [False, True]
    assert are_stopping(tmp_path, "Serv") == []
    assert not noticed
    first.kill()
    first.wait()
    for _ in range(4):
        monitor.check(1.0)
    assert noticed == [True]
