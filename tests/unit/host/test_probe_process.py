"""The process that tries a model."""

from __future__ import annotations

import signal
import subprocess
import sys

PARENT = """
import os, pickle, signal, subprocess, sys, tempfile

class Hangs:
    def __reduce__(self):
        return exec, ("import time; print('loading', flush=True); time.sleep(3600)",)

with tempfile.TemporaryFile() as pickled:
    pickled.write(pickle.dumps(Hangs()))
    pickled.seek(0)
    command = [sys.executable, "-m", "gliner_bento.host.probe"]
    subprocess.Popen(command, stdin=pickled, stdout=subprocess.PIPE).stdout.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_when_the_runner_was_killed():
    """`run` waits until nothing has the standard error, which the process inherits."""
    ended = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, timeout=240, check=False)
    assert ended.returncode == -signal.SIGKILL
