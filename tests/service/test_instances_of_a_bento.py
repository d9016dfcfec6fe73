"""A bento is built with one number of instances, and served with any."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
from types import SimpleNamespace as Made
import service
built = Made(info=Made(services=[Made(name="GLiNERService"), Made(name="GLiNERRunner")]))
service.GLiNERService.on_load_bento(built)
print(*(name for name, loaded in service.GLiNERService.all_services().items() if loaded.bento is built))
"""


def test_a_bento_of_one_instance_is_served_with_two():
    env = os.environ | {"GLINER_NUM_INSTANCES": "2"}
    ended = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["GLiNERService", "GLiNERRunner1", "GLiNERRunner2"], ended.stderr
