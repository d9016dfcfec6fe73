"""The server in processes of its own: the bento as `make serve` starts it, and the plain ASGI app under uvicorn."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from quick import UNCHECKED

from benchmark.server import Server, started
from gliner_bento.settings import PROJECT_ROOT

BENTO = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
PLAIN = [sys.executable, "-m", "uvicorn", "gliner_bento.asgi:create_app", "--factory", "--port", "{port}"]
PLAIN += ["--http", "gliner_bento.gateway.http_protocol:HttpProtocol"]
COMMANDS = {"bento": BENTO, "plain": PLAIN}


@contextlib.contextmanager
def server_of(kind: str, log: Path, **settings: object) -> Iterator[Server]:
    """A server of a kind with these settings, in float32, so that answers can be compared."""
    env = {
        f"GLINER_{name.upper()}": str(value) for name, value in {**UNCHECKED, "dtype": "float32", **settings}.items()
    }
    with started(COMMANDS[kind], cwd=PROJECT_ROOT, log=log, env=env) as server:
        yield server
