"""Heartbeats: the event loop of each process writes a counter to a file, which the supervisor reads.

A process whose event loop makes no progress (blocked by code that cannot be interrupted, or stopped) is killed, and
then restarted. Each process locks its file; the lock ends with the process. Knows nothing of models and HTTP."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_SUFFIX = ".heartbeat"
_STOPPING = "stopping"


class Heartbeat:
    """The heartbeat of this process, which belongs to `service`."""

    def __init__(self, folder: Path, service: str) -> None:
        self._file = os.open(folder / f"{service}.{os.getpid()}{_SUFFIX}", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._count = 0
        self._stopping = False

    def begin(self) -> None:
        """Start to beat, in the running event loop, if there is one."""
        with suppress(RuntimeError):
            self._beat(asyncio.get_running_loop())

    def stop(self) -> None:
        """Note that the process has been asked to end and finishes its requests."""
        self._stopping = True
        self._write()

    def _write(self) -> None:
        with suppress(OSError):
            os.pwrite(self._file, f"{self._count:012} {_STOPPING if self._stopping else ''}".encode(), 0)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._count += 1
        self._write()
        loop.call_later(_INTERVAL_S, self._beat, loop)


def are_stopping(folder: Path, service: str = "") -> list[bool]:
    """For each process that is alive, whether it has been asked to end. service: only its processes; "": all."""
    return [_is_stopping(path) for path in _alive(folder) if service in ("", _service(path))]


class HeartbeatMonitor:
    """Kills processes without a heartbeat for `timeout_s`. Runs in the supervisor.

    on_stopping: called once, at the second check in a row at which all processes have been asked to end.

    Time in which the supervisor itself does not run, as in a suspended container, does not count.
    """

    def __init__(self, folder: Path, timeout_s: float, on_stopping: Callable[[], object] = lambda: None) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._on_stopping: Callable[[], object] | None = on_stopping
        self._stopping = False
        self._beats: dict[Path, tuple[bytes, float]] = {}  # last content, seconds since it changed
        self._interval_s = min(_INTERVAL_S, timeout_s / 4)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Check in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Call it before the folder is removed, because a check without the folder raises an error."""
        self._stopped.set()
        self._thread.join(_INTERVAL_S)

    def _run(self) -> None:
        before_s = time.monotonic()
        while not self._stopped.wait(self._interval_s):
            now_s = time.monotonic()
            self.check(now_s - before_s)
            before_s = now_s

    def check(self, elapsed_s: float) -> None:
        """Kill processes whose counter has not changed for too long. elapsed_s: since the last check."""
        was_stopping, states = self._stopping, are_stopping(self._folder)
        self._stopping = bool(states) and all(states)
        if self._on_stopping and was_stopping and self._stopping:
            self._on_stopping()
            self._on_stopping = None
        elapsed_s = min(elapsed_s, 2 * self._interval_s)  # if more has elapsed, the supervisor did not run
        beats = {}
        for path in _alive(self._folder):
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # it has ended since, and another process has deleted its file
                continue
            last, silent_s = self._beats.get(path, (b"", 0.0))
            silent_s = silent_s + elapsed_s if content == last else 0.0
            if content and silent_s > self._timeout_s:
                _kill(path, self._timeout_s)
            else:
                beats[path] = content, silent_s
        self._beats = beats


def _kill(path: Path, timeout_s: float) -> None:
    logger.critical(
        "%s has not responded for more than %g s (hang_timeout_s); its process is killed and restarted",
        _service(path),
        timeout_s,
    )
    with suppress(ProcessLookupError):
        os.kill(_pid(path), signal.SIGKILL)


def _is_stopping(path: Path) -> bool:
    with suppress(OSError):
        return path.read_text().endswith(_STOPPING)
    return False


def _service(path: Path) -> str:
    return path.name.partition(".")[0]


def _pid(path: Path) -> int:
    return int(path.name.removesuffix(_SUFFIX).rpartition(".")[2])


def _alive(folder: Path) -> Iterator[Path]:
    """The files of processes that are alive. Deletes the files of all others."""
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield path
            else:
                path.unlink(missing_ok=True)
