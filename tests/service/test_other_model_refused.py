"""Instances that serve different models, as when the model's folder changes while they start one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from gliner_bento.settings import PROJECT_ROOT

CODE = """
import asyncio
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import SimpleNamespace as Made
from doubles.memory_replica import INFO, MemoryReplica
from on_a_socket import on_a_socket
from starlette.applications import Starlette
from starlette.routing import Mount
from gliner_bento.process.run import run
from gliner_bento.replicas.http.server import ReplicaApp
from runners.gliner_runner import REPLICA_PATH
from runners.instances import connect, settings

def served(model, sockets):
    app = ReplicaApp()
    app.bind(MemoryReplica(model))
    url = sockets.enter_context(on_a_socket(Starlette(routes=[Mount(REPLICA_PATH, app)])))
    return Made(to_async=Made(url=url))

async def serve(*models):
    with ExitStack() as sockets:
        runners = {f"GLiNERRunner{number}": served(model, sockets) for number, model in enumerate(models, 1)}
        run(settings, partial(connect, Made(**runners)), service="GLiNERService")
        await asyncio.Event().wait()

asyncio.run(serve(INFO, replace(INFO, fingerprint="another")))
"""


def test_the_server_ends_with_one_line_that_says_how_they_differ():
    tests = PROJECT_ROOT / "tests"
    env = os.environ | {"GLINER_NUM_INSTANCES": "2", "PYTHONPATH": f"{PROJECT_ROOT}:{tests}:{tests / 'unit'}"}
    ended = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=False, timeout=240
    )
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    line = r"gliner-bento: replica GLiNERRunner[12] serves another model than the others: fingerprint is .*'another'.*"
    assert re.fullmatch(line, ended.stderr.splitlines()[-1])
