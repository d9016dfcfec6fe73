"""The server under measurement: started with its default settings, and the memory and pid of each of its services."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from benchmark.server import Server, started, tree_of
from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.settings.names import env_name

COMMAND = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
SERVICES = {"gateway": "GLiNERService", "runner": "GLiNERRunner"}
BYTES_PER_MB = 1e6


@contextlib.contextmanager
def serving(
    log: Path,
    settings: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    *,
    checkout: Path = PROJECT_ROOT,
) -> Iterator[Server]:
    """The server of a checkout with these settings, and a folder of BentoML's own. environment: more variables."""
    env = (
        {"PYTHONPATH": str(checkout)}
        | dict(environment or {})
        | {env_name(name): str(value) for name, value in settings.items()}
    )
    with tempfile.TemporaryDirectory(prefix="gliner-bento-", ignore_cleanup_errors=True) as home:
        env |= {"BENTOML_HOME": home, "BENTOML_DO_NOT_TRACK": "True"}
        with started(COMMAND, cwd=checkout, log=log, env=env) as server:
            yield server


def processes(server: Server) -> dict[str, psutil.Process]:
    """The process of each service that runs now."""
    found = {}
    for process in tree_of(server.pid):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            for name, service in SERVICES.items():
                if "--service-name" in words and words[words.index("--service-name") + 1] == service:
                    found[name] = process
    return found


def resident_mb(server: Server) -> dict[str, float]:
    """Resident memory of each service, in MB."""
    sizes = {}
    for name, process in processes(server).items():
        with contextlib.suppress(psutil.Error):
            sizes[name] = process.memory_info().rss / BYTES_PER_MB
    return sizes


@contextlib.contextmanager
def memory_watch(server: Server, every_s: float = 1.0) -> Iterator[list[tuple[float, dict[str, float]]]]:
    """`resident_mb` while the block runs, with the seconds since its start."""
    samples: list[tuple[float, dict[str, float]]] = []
    start, stopped = time.monotonic(), threading.Event()

    def sample() -> None:
        while True:
            samples.append((time.monotonic() - start, resident_mb(server)))
            if stopped.wait(every_s):
                return

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        stopped.set()
        sampler.join()
    samples.append((time.monotonic() - start, resident_mb(server)))
