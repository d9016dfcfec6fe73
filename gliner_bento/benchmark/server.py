"""A server in processes of its own, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx

START_S = 120.0
STOP_S = 20.0


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running_server(
    command: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The URL of the server that `command` starts, once it is ready; `{port}` in it becomes a free port.

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
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, url, log)
        yield url
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=10).status_code == httpx.codes.OK:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the server did not become ready:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's whole session: gently, then not."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            return
