"""Starts jobs: measurements that need torch, gliner or another big library, each in a process of its own.

So nothing that one of them loads, allocates or sets reaches another, and a library that is missing costs its rows only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gliner_bento.setting_names import ENV_PREFIX
from gliner_bento.settings import PROJECT_ROOT

JOBS = Path(__file__).parent / "jobs"
FAST_GLINER = "fast-gliner"
_LONGEST_S = 1200.0


class NotMeasured(Exception):
    """A row cannot be measured here; the message says why."""


def run(name: str, settings: Mapping[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    """The result of the job `jobs/<name>.py` in this Python; `settings` are our environment settings for it."""
    return _run([sys.executable, "-m", f"gliner_bento.benchmark.jobs.{name}"], PROJECT_ROOT, settings or {}, arguments)


def run_elsewhere(name: str, environment: Path, requirement: str, **arguments: Any) -> dict[str, Any]:
    """The result of a job that imports nothing of ours, in a virtual environment that holds `requirement`.

    For a peer whose own requirements exclude ours; the environment is made when it is not there.
    """
    python = environment / "bin" / "python"
    stamp = environment / ".installed"
    if not stamp.exists():
        venv.create(environment, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", requirement]
        if (ended := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
            raise NotMeasured(f"{requirement} cannot be installed: {_last_line(ended.stderr)}")
        stamp.touch()
    return _run([str(python), "-c", (JOBS / f"{name}.py").read_text("utf-8")], environment, {}, arguments)


def _run(command: list[str], cwd: Path, settings: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments go in as JSON, the result comes out as the last line that is written."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    ended = subprocess.run(
        command,
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment | dict(settings),
        timeout=_LONGEST_S,
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
