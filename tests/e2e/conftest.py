"""Real servers: `bentoml serve` in processes of its own, on a free port of the loopback."""

from __future__ import annotations

import contextlib
import io
import runpy
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from observed import Collector, Observed
from quick import ENVIRONMENT

from benchmark.server import running_server, started
from gliner_bento.settings import PROJECT_ROOT


@pytest.fixture(scope="session")
def server_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with all that `server` writes."""
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="session")
def server(server_log: Path) -> Iterator[str]:
    """The project as `make serve` starts it, in float32 so that answers can be compared."""
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--dtype", "float32"]
    command += ["--forwarded-allow-ips", "127.0.0.1", "--request-timeout-s", "300"]  # a slow machine is no failure
    command += ["--redaction-key", str(server_log.with_name("redaction-key"))]
    with running_server(command, cwd=PROJECT_ROOT, log=server_log) as url:
        yield url


@pytest.fixture(scope="session")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """A second server, with two models, adapters, a log in JSON and traces."""
    folder, temporary = tmp_path_factory.mktemp("observed"), Path(tempfile.mkdtemp(prefix="t"))  # for sockets: short
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--dtype", "float32"]
    command += ["--model", "general=models/demo", "--model", "pii=models/demo", "--log-format", "json"]
    command += ["--enable-lora", "--disk-cache-dir", str(folder / "adapters"), "--enable-tracing"]
    log = folder / "log"
    with Collector() as collector:
        env = ENVIRONMENT | {"TMPDIR": str(temporary), "OTEL_BSP_SCHEDULE_DELAY": "100"}
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.server_port}"
        with started(command, cwd=PROJECT_ROOT, log=log, env=env) as server:
            yield Observed(server.url, log, temporary, collector)
        collector.shutdown()
    left = list(temporary.glob("gliner-bento-*"))
    shutil.rmtree(temporary)
    assert left == []


@pytest.fixture
def printed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Runs a Python program in this process, where its packages are loaded already, and returns what it prints."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # Hugging Face's client asks this server alone
    monkeypatch.chdir(PROJECT_ROOT)

    def run(code: str) -> str:
        program = tmp_path / "program.py"
        program.write_text(code, encoding="utf-8")
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as printed:
            warnings.simplefilter("ignore")
            runpy.run_path(str(program), run_name="__main__")
        return printed.getvalue()

    return run


@pytest.fixture
def run_example(server: str, printed_by: Callable[[str], str]) -> Callable[[str], str]:
    """Runs the Python code of a page against `server`, and returns what it prints."""
    return lambda code: printed_by(code.replace("http://localhost:3000", server))
