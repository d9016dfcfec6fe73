"""Starts jobs: measurements that need torch, gliner or another large library, each in a process of its own.

What one job loads, allocates or sets does not affect another, and a missing library costs only the rows that need it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.settings.names import ENV_PREFIX

JOBS = Path(__file__).parent / "jobs"
FAST_GLINER = "fast-gliner"
_TIMEOUT_S = 1200.0


class NotMeasured(Exception):
    """A row cannot be measured here; the message says why."""


def run(
    name: str, settings: Mapping[str, str] | None = None, checkout: Path = PROJECT_ROOT, **arguments: Any
) -> dict[str, Any]:
    """The result of a checkout's job `jobs/<name>.py` in this Python. settings: environment names of our settings."""
    environment = {"PYTHONPATH": str(checkout), **(settings or {})}
    return _run([sys.executable, "-m", f"benchmark.jobs.{name}"], checkout, environment, arguments)


def run_in_environment(name: str, environment: Path, requirements: Sequence[str], **arguments: Any) -> dict[str, Any]:
    """The result of a job that imports nothing of this project, in a virtual environment with `requirements`.

    For a baseline whose requirements conflict with ours; creates the environment if it does not exist.
    """
    python = environment / "bin" / "python"
    stamp = environment / ".installed"
    if not stamp.exists():
        venv.create(environment, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        if (ended := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
            raise NotMeasured(f"{', '.join(requirements)} cannot be installed: {_last_line(ended.stderr)}")
        stamp.touch()
    return _run([str(python), "-c", (JOBS / f"{name}.py").read_text("utf-8")], environment, {}, arguments)


def _run(command: list[str], cwd: Path, settings: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Passes the arguments as JSON on stdin, paths as text; the result is the last line of stdout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    ended = subprocess.run(
        command,
        input=json.dumps(arguments, default=str),
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment | dict(settings),
        timeout=_TIMEOUT_S,
    )
    if ended.returncode:
        raise NotMeasured(_reason(ended.stderr))
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


def _reason(stderr: str) -> str:
    last = _last_line(stderr)
    if last.startswith("ModuleNotFoundError: No module named "):
        return last.partition("named ")[2].strip("'\"") + " is not installed"
    return last


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
