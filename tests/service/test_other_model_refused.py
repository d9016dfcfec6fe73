"""Instances that serve different models, as when the model's folder changes while they start one after the other."""

from __future__ import annotations

import os
import subprocess
import sys

from gliner_bento.settings import PROJECT_ROOT

CODE = """
import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace as Made
from memory_replica import INFO, MemoryReplica
from gliner_bento.process.run import run
from runners.instances import connect, settings

async def serve(*models):
    runners = {f"GLiNERRunner{number}": Made(replica=MemoryReplica(model)) for number, model in enumerate(models, 1)}
    run(settings, partial(connect, Made(**runners)), service="GLiNERService")
    await asyncio.Event().wait()

asyncio.run(serve(INFO, replace(INFO, fingerprint="another")))
"""


def test_the_server_ends_with_one_line_that_says_how_they_differ():
    env = os.environ | {"GLINER_NUM_INSTANCES": "2", "PYTHONPATH": f"{PROJECT_ROOT}:{PROJECT_ROOT / 'tests' / 'unit'}"}
    ended = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=False, timeout=240
    )
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    reason = "replica GLiNERRunner2 serves another model than the others: fingerprint is 'another', not "
    assert ended.stderr.splitlines()[-1].startswith(f"gliner-bento: {reason}")
