"""Real servers: `bentoml serve` in processes of its own, on a free port of the loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
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
    command += ["--forwarded-allow-ips", "127.0.0.1"]
    with running_server(command, cwd=PROJECT_ROOT, log=server_log) as url:
        yield url


@pytest.fixture
def run_example(server: str) -> Callable[[str], str]:
    """Runs the Python code of a page against `server`, and returns what it prints."""

    def run(code: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", code.replace("http://localhost:3000", server)],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            cwd=PROJECT_ROOT,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run
