"""Loads a model in a process of its own, so that a crash does not end the server.

python -m gliner_bento.host.probe < PICKLED_SETTINGS
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from gliner_bento.errors import ModelFailed, StartupError, one_line
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.storage.parent import when_orphaned

_FAILED = 3  # exit code
_COMMAND = [sys.executable, "-m", "gliner_bento.host.probe"]
_CHECK_INTERVAL_S = 0.05

_BASE_BYTES = 4 * 2**30
_BYTES_PER_WEIGHT_BYTE = 10


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """When the process is killed.

    timeout_s: after this time. weights_bytes: size of the model's weights; the process may have `_BASE_BYTES`, and
    `_BYTES_PER_WEIGHT_BYTE` times the weights. cancelled: set when nobody wants the model any more.
    """

    timeout_s: float
    weights_bytes: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def max_bytes(self) -> int:
        """Memory that the process may have, without the files that it maps."""
        return _BASE_BYTES + _BYTES_PER_WEIGHT_BYTE * self.weights_bytes


def probe(settings: Settings, limits: ProbeLimits) -> None:
    """Load the model of `settings` in another process, which then ends. Raises `ModelFailed`; blocks."""
    with TemporaryFile() as pickled, TemporaryFile() as errors:
        pickled.write(pickle.dumps(settings))
        pickled.seek(0)
        process = subprocess.Popen(_COMMAND, stdin=pickled, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            _wait(process, limits)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        _raise_failure(process.returncode, errors.read())


def _wait(process: subprocess.Popen[bytes], limits: ProbeLimits) -> None:
    """Wait until the process has ended. Raises `ModelFailed` if a limit is reached first."""
    ends_s = time.monotonic() + limits.timeout_s
    while process.poll() is None:
        if limits.cancelled.wait(_CHECK_INTERVAL_S):
            raise ModelFailed("the model was deleted while it was loaded")
        if time.monotonic() > ends_s:
            raise ModelFailed(f"the process that tried the model did not end within {limits.timeout_s:g} s")
        if (used := _own_bytes(process.pid)) > limits.max_bytes:
            raise ModelFailed(
                f"the process that tried the model took {used >> 20} MB of memory, for weights of "
                f"{limits.weights_bytes >> 20} MB; its configuration may be wrong"
            )


def _own_bytes(pid: int) -> int:
    """The memory of a process without the files that it maps; 0 where the system does not tell."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):  # "RssAnon:  1234 kB"
                return int(line.split()[1]) * 1024
    return 0


def _raise_failure(exit_code: int, errors: bytes) -> None:
    """Raise `ModelFailed` if the process has failed. errors: its stderr."""
    if exit_code == _FAILED:
        raise ModelFailed(errors.decode(errors="replace").strip().rpartition("\n")[2])
    if exit_code:
        how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        why = "; the system does that when memory has run out" if exit_code == -signal.SIGKILL else ""
        raise ModelFailed(f"the process that tried the model ended with {how}{why}")


def main() -> int:
    """What the other process runs. It ends if the runner is killed, which then cannot end it."""
    when_orphaned(lambda: os._exit(_FAILED))
    try:
        settings: Settings = pickle.load(sys.stdin.buffer)
        LocalReplica.load(settings.model_copy(update={"warmup_iterations": 0})).close()
    except (StartupError, OSError, MemoryError) as error:
        sys.stderr.write(f"{one_line(error)}\n")
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
