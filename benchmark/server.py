"""A server in processes of its own, as a context manager: started, waited for, its memory measured, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

START_S = 240.0
STOP_S = 120.0
STARTS = 3
PORT_TAKEN = "Address already in use"


@dataclass(frozen=True, slots=True)
class Server:
    """A ready server at `url`."""

    url: str
    pid: int

    def resident_bytes(self) -> dict[str, int]:
        """Resident memory of the largest process, which is the one with the model, and the sum over all processes."""
        sizes = [0]
        for process in tree_of(self.pid):
            with contextlib.suppress(psutil.Error):
                sizes.append(process.memory_info().rss)
        return {"model_process": max(sizes), "all_processes": sum(sizes)}

    def cpu_seconds(self) -> dict[int, float]:
        """CPU time that each process has used, by process id."""
        used = {}
        for process in tree_of(self.pid):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used[process.pid] = times.user + times.system
        return used


@contextlib.contextmanager
def memory_samples(server: Server) -> Iterator[list[int]]:
    """Resident bytes of the process with the model: on entry, every second, and on exit."""
    sizes, stopped = [server.resident_bytes()["model_process"]], threading.Event()

    def sample() -> None:
        while not stopped.wait(1.0):
            sizes.append(server.resident_bytes()["model_process"])

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield sizes
    finally:
        stopped.set()
        sampler.join()
    sizes.append(server.resident_bytes()["model_process"])


def metrics_page(url: str, headers: Mapping[str, str]) -> str:
    """The text of /metrics."""
    return httpx.get(f"{url}/metrics", headers=headers).raise_for_status().text


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(
    command: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    ready: str = "/readyz",
    start_s: float = START_S,
) -> Iterator[Server]:
    """Start the server of `command` and wait until it is ready; `{port}` in the command becomes a free port.

    ready: a path that answers 200 then, or a string that its log contains then.
    The server inherits none of this process's `GLINER_` settings, only `env`. One that found its port taken is started
    again: another server may take the free port before this one binds it. Raises RuntimeError, with the end of its
    `log`, if it does not become ready within `start_s`.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GLINER_")}
    inherited.pop("PROMETHEUS_MULTIPROC_DIR", None)
    for attempt in range(STARTS):
        port = free_port()
        with log.open("wb") as out:
            process = subprocess.Popen(
                [part.format(port=port) for part in command],
                cwd=cwd,
                env=inherited | dict(env or {}),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            server = Server(f"http://127.0.0.1:{port}", process.pid)
            if _becomes_ready(process, server.url, log, ready, start_s):
                yield server
                return
            said = log.read_text(errors="replace")
            if PORT_TAKEN not in said or attempt == STARTS - 1:
                raise RuntimeError(f"the server did not become ready:\n{said[-4000:]}")
        finally:
            _stop(process)


@contextlib.contextmanager
def running_server(
    command: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """`started`, yielding only the URL."""
    with started(command, cwd=cwd, log=log, env=env) as server:
        yield server.url


def tree_of(pid: int) -> list[psutil.Process]:
    """A process and its descendants that are alive."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _becomes_ready(process: subprocess.Popen[bytes], url: str, log: Path, ready: str, start_s: float) -> bool:
    deadline = time.monotonic() + start_s
    with httpx.Client(base_url=url, timeout=10) as client:  # one: a new one takes 30 ms of CPU time
        while process.poll() is None and time.monotonic() < deadline:
            if _is_ready(client, log, ready):
                return True
            time.sleep(0.2)
    return False


def _is_ready(client: httpx.Client, log: Path, ready: str) -> bool:
    if not ready.startswith("/"):
        return ready in log.read_text(errors="replace")
    with contextlib.suppress(httpx.TransportError):
        return client.get(ready).status_code == httpx.codes.OK
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate the server, then kill what is left of it and of its descendants."""
    descendants = tree_of(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(descendants, timeout=5)
    for left in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
