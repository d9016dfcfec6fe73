"""A signal to real processes, in which a handler stands for the HTTP server's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT

pytestmark = pytest.mark.long

PROCESS = """
import os, signal, sys, threading, time
from gliner_bento.process.shutdown import Shutdown

def say(line):
    print(line, flush=True)

ended = threading.Event()

def server(number, frame):
    say(f"the server stops, needed by {{len(requests)}}")
    {ends} and ended.set()

requests = [{needed}]  # of other processes
signal.signal(signal.SIGTERM, server)
Shutdown(
    {timeout_s},
    begin=lambda: say("begin"),
    needed=lambda: bool(requests) and requests.pop(),
    fail=lambda: (say("fail"), {hangs} and threading.Event().wait()),
    ending=lambda: say("ending"),
).install()
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGTERM)
while not ended.is_set():
    time.sleep(0.05)
say("ended")
"""


def run(**parts: object) -> tuple[int, list[str], str]:
    """Exit code, lines and the errors of a process that gets the signal twice."""
    code = PROCESS.format(**{"needed": "", "timeout_s": 60, "ends": True, "hangs": False} | parts)
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=240
    )
    return ended.returncode, ended.stdout.splitlines(), ended.stderr


def test_the_server_stops_accepting_and_ends_when_its_requests_have_finished() -> None:
    assert run() == (0, ["begin", "the server stops, needed by 0", "ended"], "")


def test_a_server_that_others_need_goes_on_until_they_have_ended() -> None:
    assert run(needed="True, True, True") == (0, ["begin", "the server stops, needed by 0", "ended"], "")


@pytest.mark.parametrize("parts", [{}, {"needed": "*[True] * 10_000"}, {"hangs": True}], ids=str)
def test_requests_that_do_not_finish_fail_and_the_process_ends(parts: dict[str, object]) -> None:
    code, lines, errors = run(ends=False, timeout_s=2, **parts)
    assert code == 0
    assert [line for line in lines if line != "the server stops, needed by 0"] == ["begin", "fail", "ending"]
    assert errors == "gliner-bento: requests still run 2 s after the signal (shutdown_timeout_s); the process ends\n"


def test_a_program_that_handles_no_signal_itself_is_left_alone() -> None:
    code = "import signal; from gliner_bento.process.shutdown import Shutdown; held = signal.getsignal(signal.SIGINT)\n"
    code += "Shutdown(1).install(); print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT) is held)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout in {"0 True\n", "Handlers.SIG_DFL True\n"}


def test_threads_of_a_service_take_shorter_turns_and_its_signal_reaches_all_parts() -> None:
    code = """
import os, signal, sys, threading
from types import SimpleNamespace
from gliner_bento.process.run import ReplicaSource, run
from gliner_bento.settings import Settings
before_s = sys.getswitchinterval()
signal.signal(signal.SIGTERM, lambda *_: print("ends"))  # as uvicorn does
failed = threading.Event()
source = ReplicaSource(None, on_signal=lambda: print("replicas"), fail=lambda: (print("fail too"), failed.set()))
connections = SimpleNamespace(end=lambda: print("connections"), fail=lambda: print("fail"))
run(Settings(shutdown_timeout_s=0.5), lambda _: source, connections=connections)
print(sys.getswitchinterval() < before_s)
signal.raise_signal(signal.SIGTERM)
assert failed.wait(240)
sys.stdout.flush()
os._exit(0)
"""
    written = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, check=True, timeout=240
    )
    assert written.stdout.splitlines() == [b"True", b"connections", b"replicas", b"ends", b"fail", b"fail too"]
