"""Servers that a check starts on loopback, and the environment that they run in."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

Words = list[str | Path]
_START_S, _END_S = 120, 30


def clean() -> dict[str, str]:
    """This process's environment without settings of the server, and without other paths of modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("GLINER_", "PYTHONPATH"))}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """A program with all that it starts, ended with the block. environment: `clean()` by default."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment or clean(),
            start_new_session=True,
        )
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    os.killpg(process.pid, number)
                    try:
                        process.wait(_END_S)
                    except subprocess.TimeoutExpired:
                        continue


def wait_for(url: str) -> str:
    """The page, once there is one. Raises ValueError after two minutes."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                return str(page.read().decode())
        except OSError:
            time.sleep(0.1)
    raise ValueError(f"no answer from {url}")
