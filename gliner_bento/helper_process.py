"""A process of this one's own, which gets jobs on its standard input and answers on its standard output."""

from __future__ import annotations

import subprocess
import sys
import weakref
from contextlib import suppress
from typing import Any


class HelperProcess:
    """Starts the process when it is first needed, and again after it has ended. For one thread at a time, which does
    the jobs; `kill` is for all threads.

    module: the program, which ends when its standard input does, also if this process is killed.
    """

    def __init__(self, module: str) -> None:
        self._command = [sys.executable, "-m", module]
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self.killed = False

    @property
    def pid(self) -> int | None:
        """The process's id; None while there is none."""
        return self._process.pid if self._process else None

    def kill(self) -> None:
        """End the job that another thread does now: it sees the end of the process, and gets no further one until
        `reset`."""
        self.killed = True  # first: `started` looks at it last
        if process := self._process:
            process.kill()

    def reset(self) -> None:
        """End the process; the next job may start another one."""
        self.close()
        self.killed = False

    def close(self) -> None:
        """End the process."""
        if self._finalizer:
            self._finalizer()
        self._process = self._finalizer = None

    def close_if_ended(self) -> None:
        """Forget a process that somebody has ended."""
        if self._process and self._process.poll() is not None:
            self.close()

    def started(self) -> subprocess.Popen[bytes]:
        """The process; starts one if there is none. Raises OSError if that fails, or after `kill`."""
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            self._finalizer = weakref.finalize(self, _end, self._process)
        if self.killed:
            self.close()
            raise OSError("the job was stopped")
        return self._process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was not written cannot be any more
            if pipe:
                pipe.close()
