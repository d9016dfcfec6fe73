"""How long a server needs after its model process has died, against loading the same model in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import httpx

from benchmark.server import Server
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings.names import env_name
from reliability.measurement import Measurement, Target
from reliability.served import processes, serving

_LOAD = (
    "import os; from gliner_bento.settings import Settings; "
    "from gliner_bento.replicas.local.replica import LocalReplica; "
    "LocalReplica.load(Settings.load().decided_for('cpu')); os._exit(0)"
)
_POLL_S = 0.02
_MORE_S = 1.0
"""A restart may take so much longer than loading."""


def restart(log: Path, *, rounds: int, settings: Mapping[str, object]) -> Measurement:
    """In each round, load the model in a new process, and then kill the server's model process."""
    at_start = provenance()
    loads_s, restarts_s = list[float](), list[float]()
    with serving(log, {"max_restarts": 2 * rounds} | dict(settings)) as server:
        for _ in range(rounds):
            loads_s.append(_load_s(settings))
            restarts_s.append(_restart_s(server))
    load_s, restart_s = median(loads_s), median(restarts_s)
    targets = [Target("ready again, longer than loading by (medians)", "s", restart_s - load_s, _MORE_S)]
    facts = {"load_s": loads_s, "restart_s": restarts_s, "settings": dict(settings)}
    note = f"Medians of {rounds}, interleaved: loaded in a new process {load_s:.1f} s, ready again {restart_s:.1f} s."
    return Measurement("restart", f"python -m reliability restart --rounds {rounds}", targets, facts, at_start, [note])


def _load_s(settings: Mapping[str, object]) -> float:
    """Seconds from the start of a process until the model is loaded and warmed up in it."""
    environment = {**os.environ, **{env_name(name): str(value) for name, value in settings.items()}}
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", _LOAD], env=environment, check=True, capture_output=True)
    return time.monotonic() - began_s


def _restart_s(server: Server) -> float:
    """Seconds from SIGKILL until `/readyz` is 200 again."""
    killed = processes(server)["runner"]
    began_s = time.monotonic()
    killed.kill()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        while client.get("/readyz").is_success:  # the gateway has not noticed
            time.sleep(_POLL_S)
        while not client.get("/readyz").is_success:
            time.sleep(_POLL_S)
    return time.monotonic() - began_s
