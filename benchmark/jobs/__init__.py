"""Programs that run in a process of their own; they may import what the rest of the benchmark must not.

A job reads its arguments as JSON from stdin and writes its result as one line of JSON; see `benchmark.job`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def run_job(job: Callable[..., dict[str, Any]]) -> None:
    """Run `job` with the arguments from stdin. Output of libraries goes to stderr."""
    arguments = json.loads(sys.stdin.read())
    stdout = os.dup(1)
    os.dup2(2, 1)
    result = job(**arguments)
    sys.stdout.flush()
    os.write(stdout, b"\n" + json.dumps(result).encode() + b"\n")
