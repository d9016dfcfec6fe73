"""The server in processes of its own: the bento as `make serve` starts it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from quick import UNCHECKED

from benchmark.server import Server, started
from gliner_bento.settings import PROJECT_ROOT

PATIENT = {**UNCHECKED, "dtype": "float32", "request_timeout_s": 300}
BENTO = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]


@contextlib.contextmanager
def server_of(log: Path, **settings: object) -> Iterator[Server]:
    """A server with these settings, in float32, so that answers can be compared."""
    env = {f"GLINER_{name.upper()}": str(value) for name, value in {**PATIENT, **settings}.items()}
    with started(BENTO, cwd=PROJECT_ROOT, log=log, env=env) as server:
        yield server
