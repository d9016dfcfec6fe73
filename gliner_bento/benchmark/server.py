"""A server in processes of its own, for as long as a block lasts: started, awaited, weighed, ended."""

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

START_S = 120.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready, at `url`."""

    url: str
    pid: int

    def resident_bytes(self) -> dict[str, int]:
        """Resident memory: of the largest process, which is the one that holds the model, and of all together."""
        sizes = [0]
        for process in tree_of(self.pid):
            with contextlib.suppress(psutil.Error):
                sizes.append(process.memory_info().rss)
        return {"model_process": max(sizes), "all_processes": sum(sizes)}


@contextlib.contextmanager
def weighed(server: Server) -> Iterator[list[int]]:
    """Within it, what the process with the model holds: at first, every second, and at last."""
    sizes, over = [server.resident_bytes()["model_process"]], threading.Event()

    def weigh() -> None:
        while not over.wait(1.0):
            sizes.append(server.resident_bytes()["model_process"])

    watch = threading.Thread(target=weigh)
    watch.start()
    try:
        yield sizes
    finally:
        over.set()
        watch.join()
    sizes.append(server.resident_bytes()["model_process"])


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
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
    """The server that `command` starts, once `ready` is answered 200; `{port}` in the command becomes a free port.

    ready: a path of the server, or, where it has none, words that its log says then.
    The server sees none of this process's `GLINER_` settings, only `env`. Raises RuntimeError, with the end of its
    `log`, if it does not become ready.
    """
    port = free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GLINER_")}
    inherited.pop("PROMETHEUS_MULTIPROC_DIR", None)
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
        _wait_until_ready(process, server.url, log, ready, start_s)
        yield server
    finally:
        _stop(process)


@contextlib.contextmanager
def running_server(
    command: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """`started`, for those who need the URL alone."""
    with started(command, cwd=cwd, log=log, env=env) as server:
        yield server.url


def tree_of(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it, while they live."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path, ready: str, start_s: float) -> None:
    give_up = time.monotonic() + start_s
    while process.poll() is None and time.monotonic() < give_up:
        if _is_ready(url, log, ready):
            return
        time.sleep(0.2)
    raise RuntimeError(f"the server did not become ready:\n{log.read_text(errors='replace')[-4000:]}")


def _is_ready(url: str, log: Path, ready: str) -> bool:
    if not ready.startswith("/"):
        return ready in log.read_text(errors="replace")
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url + ready, timeout=10).status_code == httpx.codes.OK
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server, and then whatever it has started and not ended: gently, then not."""
    offspring = tree_of(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(offspring, timeout=5)
    for left in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
