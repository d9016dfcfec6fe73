"""Real servers: `bentoml serve` in processes of its own, on a free port of the loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.server import running_server
from gliner_bento.settings import PROJECT_ROOT


@pytest.fixture(scope="session")
def server_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with all that `server` writes."""
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="session")
def server(server_log: Path) -> Iterator[str]:
    """The project as `make serve` starts it, in float32 so that answers can be compared."""
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--dtype", "float32"]
    command += ["--max-queue-wait-s", "60"]  # a slow machine is no failure
    with running_server(command, cwd=PROJECT_ROOT, log=server_log) as url:
        yield url
