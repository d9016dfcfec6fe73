"""Loads a model in a process of its own, so that a crash does not end the server.

python -m gliner_bento.replicas.local.probe < PICKLED_SETTINGS
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys

from gliner_bento.errors import ModelFailed, StartupError, one_line
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings

_FAILED = 3  # exit code
_COMMAND = [sys.executable, "-m", "gliner_bento.replicas.local.probe"]


def probe(settings: Settings, timeout_s: float) -> None:
    """Load the model of `settings` in another process, which then ends. Raises `ModelFailed`; blocks."""
    try:
        ended = subprocess.run(
            _COMMAND, input=pickle.dumps(settings), capture_output=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise ModelFailed(f"the process that tried the model did not end within {timeout_s:g} s") from None
    if ended.returncode == _FAILED:
        raise ModelFailed(ended.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    if ended.returncode:
        how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"exit code {ended.returncode}"
        why = "; the system does that when memory has run out" if ended.returncode == -signal.SIGKILL else ""
        raise ModelFailed(f"the process that tried the model ended with {how}{why}")


def main() -> int:
    """What the other process runs."""
    try:
        settings: Settings = pickle.load(sys.stdin.buffer)
        LocalReplica.load(settings.model_copy(update={"warmup_iterations": 0})).close()
    except (StartupError, OSError, MemoryError) as error:
        sys.stderr.write(f"{one_line(error)}\n")
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
