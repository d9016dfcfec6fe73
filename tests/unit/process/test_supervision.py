"""The supervisor's rules, with real processes and services that load nothing."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gliner_bento.process.announcement import ADDRESS
from gliner_bento.settings.configuration import PROJECT_ROOT

pytestmark = pytest.mark.long

PATIENCE_S = 240.0  # several processes, one after the other

SUPERVISOR = """
import os, signal, subprocess, sys
import click
from gliner_bento.settings import Settings
from gliner_bento.process.supervision import supervise

@click.command()
@click.argument("child")
def serve(child):
    '''Start a process again whenever it ends, until a signal or a file ends this one: what BentoML does.'''
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # in its threads: this one gets it before the child ends
    supervise(Settings.load())
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    while not (ended or os.path.exists('ended')):
        subprocess.run([sys.executable, "-c", child])

serve()
"""

SERVICE = """
import os, signal, time
from pathlib import Path
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings import Settings
from gliner_bento.process.supervision import ServiceProcess

with open("starts", "a") as file:
    file.write("x")
starts = os.path.getsize("starts")
process = ServiceProcess("Service", Settings.load())
with process.starting():
    {start}
{then}
"""

KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
STOPPED = "process.stopped()"
END = "starts == 3 and os.kill(os.getppid(), signal.SIGTERM)"
"""With the third process, the operator ends the server."""
FILE_ENDS = "open('ended', 'w')"
"""Of a process that ends immediately: the signal's handler could run after its supervisor has started another one."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run Python code in a process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT_ROOT))

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    return run


@pytest.mark.parametrize(("variable", "url"), [("", "http://127.0.0.1:3000"), ("true", "http://localhost:3000")])
def test_the_announced_address_is_that_of_the_container(run, monkeypatch, variable, url):
    monkeypatch.setenv("BENTOML_CONTAINERIZED", variable)
    monkeypatch.setenv("GLINER_ALLOW_ANONYMOUS", "true")
    child = f"import os; print(os.environ['{ADDRESS}'], flush=True); {FILE_ENDS}"
    assert run(SUPERVISOR, child).stdout.split() == [url]


@pytest.fixture
def supervised(run, monkeypatch):
    """Run a supervisor and its service; `start` and `then` are code of the service."""

    def supervised(start: str, then: str = "", **settings: object) -> tuple[int, int, list[str]]:
        """Exit code, number of processes that were started, lines on standard error."""
        for name, value in settings.items():
            monkeypatch.setenv(f"GLINER_{name.upper()}", str(value))
        ended = run(SUPERVISOR, SERVICE.format(start=start, then=then))
        return ended.returncode, Path("starts").stat().st_size, ended.stderr.splitlines()

    return supervised


@pytest.mark.parametrize(
    ("error", "message"),
    [("SettingsError", "no such\\nmodel"), ("OSError", "no space"), ("RuntimeError", "CUDA out of memory")],
)
def test_a_service_that_cannot_start_ends_the_server(supervised, error, message):
    line = " ".join(message.split("\\n"))
    assert supervised(f"raise {error}('{message}')") == (1, 1, [f"gliner-bento: {line}"])


def test_a_process_that_is_started_while_the_server_ends_writes_nothing(run):
    child = """
import os, signal
from pathlib import Path
from gliner_bento.process.supervision import FOLDER, ServiceProcess
from gliner_bento.settings import Settings

if os.path.exists("first"):
    open("ended", "w")
open("first", "w")
Path(os.environ[FOLDER], "failed").touch()
with ServiceProcess("Service", Settings.load()).starting():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = run(SUPERVISOR, child)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_fault_of_ours_shows_its_traceback(supervised):
    code, starts, lines = supervised("1 / 0")
    assert (code, starts) == (1, 1)
    assert lines[-2:] == ["ZeroDivisionError: division by zero", "gliner-bento: division by zero"]


def test_a_service_that_is_killed_while_it_starts_ends_the_server(supervised):
    code, starts, lines = supervised(KILLED)
    assert (code, starts, len(lines)) == (1, 2, 1), lines
    assert lines[0].startswith("gliner-bento: Service was killed while it started; ")


def test_a_service_that_dies_when_ready_is_started_again_until_it_has_died_too_often(supervised):
    code, starts, [first, second, last] = supervised("pass", KILLED, max_restarts=2)
    assert (code, starts) == (1, 4)
    assert first.endswith("restarting it in 0 s")
    assert second.endswith("restarting it in 2 s")
    assert last.startswith("gliner-bento: Service has died too often (deaths within 600 s: 3, max_restarts: 2)")


def test_deaths_before_the_window_do_not_count(supervised):
    code, starts, _ = supervised("pass", f"{END}; time.sleep(1.5); {KILLED}", max_restarts=1, restart_window_s=1)
    assert (code, starts) == (0, 3)


def test_a_process_that_was_stopped_has_not_died(supervised):
    assert supervised("pass", f"{END}; {STOPPED}", max_restarts=0) == (0, 3, [])


def test_a_service_that_was_ready_may_fail_to_start_later(supervised):
    """The model's folder may be back at the next attempt."""
    code, starts, lines = supervised("if starts > 1: raise OSError('the folder is gone')", KILLED, max_restarts=1)
    assert (code, starts) == (1, 3)
    assert "gliner-bento: Service failed to start: the folder is gone" in lines
    assert lines[-1].startswith("gliner-bento: Service has died too often (deaths within 600 s: 2")


def test_a_signal_ends_a_service_that_starts(supervised):
    start = "os.kill(os.getppid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)"
    assert supervised(start) == (0, 1, [])


def test_a_supervisor_starts_again_if_its_ports_were_taken_in_between(run):
    fault = f"print('started', flush=True); raise OSError({errno.EADDRINUSE}, 'Address already in use')"
    code = SUPERVISOR.replace("    supervise(Settings.load())\n", f"    supervise(Settings.load())\n    {fault}\n")
    ended = run(code, "")
    assert (ended.returncode, ended.stdout) == (1, "started\n" * 3)
    assert ended.stderr.startswith("gliner-bento: the server cannot start: Address already in use; ")
    assert ended.stderr.count("\n") == 1


def test_the_supervisor_ends_without_a_last_search_for_garbage(run):
    count = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0))"
    assert run(count + SUPERVISOR, FILE_ENDS).stdout == "True\n"


CIRCUS = """
import sys
from circus.arbiter import Arbiter
from circus.watcher import Watcher
from gliner_bento.process.deaths import notice_deaths

notice_deaths()
watchers = [Watcher(name, sys.executable, args=["-c", sys.argv[1], name], copy_env=True) for name in ("one", "two")]
Arbiter(watchers, "ipc://endpoint", "ipc://events", check_delay=3600).start()
"""


def test_a_process_that_dies_is_started_again_long_before_circus_looks_for_it(run):
    """Two services die at about the same time, twice."""
    child = """
import os, signal, sys, time
with open(sys.argv[1], "a") as file:
    file.write("x")
if os.path.getsize(sys.argv[1]) < 3:
    os.kill(os.getpid(), signal.SIGKILL)
while not all(os.path.exists(name) and os.path.getsize(name) == 3 for name in ("one", "two")):
    time.sleep(0.05)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(3600)
"""
    ended = run(CIRCUS, child)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [Path(name).read_text() for name in ("one", "two")] == ["xxx", "xxx"]


@pytest.mark.parametrize("phase", ["starting", "ready"])
def test_a_service_ends_when_its_supervisor_was_killed(run, tmp_path, phase):
    """`run` waits until nothing has its standard error, which the service inherits."""
    waits = "os.kill(os.getppid(), signal.SIGKILL); time.sleep(3600)"
    service = SERVICE.format(start=waits, then="") if phase == "starting" else SERVICE.format(start="pass", then=waits)
    ended = run(SUPERVISOR, service)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stderr == "gliner-bento: Service ends, because its supervisor has ended\n"


@pytest.mark.parametrize("ignored", [False, True], ids=["in a terminal", "with nohup"])
def test_a_terminal_that_closes_ends_the_server_unless_the_signal_is_ignored(run, ignored):
    """circus would restart the services."""
    child = """
import os, signal, sys, time
with open(sys.argv[1], "a") as file:
    file.write("x")
while not all(os.path.exists(name) for name in ("one", "two")):
    time.sleep(0.05)
if sys.argv[1] == "one":
    os.kill(os.getppid(), signal.SIGHUP)
    time.sleep(1)
    open("waited", "w")
    os.kill(os.getppid(), signal.SIGTERM)
time.sleep(3600)
"""
    prepare = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)" if ignored else ""
    ended = run(prepare + CIRCUS, child)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [Path(name).read_text() for name in ("one", "two")] == ["x", "x"]
    assert ignored <= Path("waited").exists(), "it goes on"
