"""Measures `make serve` from a fresh clone to the first answer: time, CPU time, megabytes of .venv, lines of output.

    first_answer.py                  in this checkout, as CI does before it installs developer tools
    first_answer.py --every-python   in a clone per Python 3.10 to 3.14 that is found, with an empty pip cache

Standard library only. Where pip would install the CUDA build of torch (6 GB), `--every-python` only lets pip resolve
the lock; with --cuda it installs that build too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from install import megabytes

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MAX_LINES = 25
REQUEST = {"text": "Bill Gates founded Microsoft in 1975.", "labels": ["person", "organization"]}
LIMIT_S = 600


def serve_once(folder: Path, log: Path, **environment: str) -> tuple[float, float, int]:
    """Of `make serve` in `folder` to its first answer: seconds, CPU seconds (with its end), lines of output."""
    used_before, started = cpu_seconds(), time.monotonic()
    with served(["make", "--no-print-directory", "serve", "PORT={port}"], folder, log, os.environ | environment):
        seconds, lines = time.monotonic() - started, len(log.read_text().splitlines())
    return seconds, cpu_seconds() - used_before, lines


@contextmanager
def served(command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The URL of a server that has answered `REQUEST`; it ends with the block. command: has {port} in the port's place.
    Raises SystemExit if there is no answer, or a wrong one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    deadline = time.monotonic() + LIMIT_S
    with log.open("wb") as output:
        server = subprocess.Popen(
            [word.format(port=port) for word in command],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        entities = answer(server, url, deadline)
        if not {"Bill Gates", "Microsoft"} <= {entity["text"] for entity in entities}:
            raise SystemExit(f"{shlex.join(command)} answers {entities}")
        yield url
    except SystemExit:
        print(log.read_text())
        raise
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)


def cpu_seconds() -> float:
    """Of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def answer(server: subprocess.Popen[bytes], url: str, deadline: float) -> list[dict[str, object]]:
    """The entities of `REQUEST`, as soon as the server is ready."""
    request = urllib.request.Request(
        f"{url}/v1/extract", json.dumps(REQUEST).encode(), {"Content-Type": "application/json"}
    )
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=60).close()
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["entities"]  # type: ignore[no-any-return]
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"no answer from the server (exit code {server.poll()})")


def here() -> None:
    """In this checkout. Fails if the output is longer than the README says."""
    log = Path(tempfile.mkstemp(suffix=".log")[1])
    try:
        seconds, used, lines = serve_once(ROOT, log)
        time_used = f"first answer after {seconds:.0f} s (CPU time {used:.0f} s)"
        print(f"`make serve`: {time_used}, .venv {megabytes(ROOT / '.venv'):,} MB, {lines} lines of output")
        if lines > MAX_LINES:
            raise SystemExit(f"more than {MAX_LINES} lines of output:\n{log.read_text()}")
    finally:
        log.unlink()


def every_python(cuda: bool) -> None:
    """A table with a row per interpreter."""
    print("| Python | torch | first answer after | CPU time | `.venv` | lines of output |")
    print("|---|---|---|---|---|---|", flush=True)
    for version in VERSIONS:
        python = interpreter(version)
        if python is None:
            print(f"| {version} | not found on this machine | | | | |")
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(row(version, python, Path(folder), cuda), flush=True)


def row(version: str, python: str, folder: Path, cuda: bool) -> str:
    torch = resolved(python, folder)
    if "+cpu" not in torch and not cuda:
        return f"| {version} | {torch} | CUDA build, not installed; pip finds all packages of the locks | | | |"
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    new_machine = {"PYTHON": python, "PIP_NO_CACHE_DIR": "1", "PYTHONDONTWRITEBYTECODE": ""}
    seconds, used, lines = serve_once(clone, folder / "log", **new_machine)
    subprocess.run([clone / ".venv/bin/python", "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
    return f"| {version} | {torch} | {seconds:.0f} s | {used:.0f} s | {megabytes(clone / '.venv'):,} MB | {lines} |"


def resolved(python: str, folder: Path) -> str:
    """The version of torch that pip would install. Raises CalledProcessError if pip does not find the whole lock."""
    pip = [str(folder / "pip/bin/python"), "-m", "pip", "-qq", "install"]
    subprocess.run([python, "-m", "venv", str(folder / "pip")], check=True)
    subprocess.run([*pip, "--upgrade", "pip"], check=True)  # an old pip downloads all that it resolves
    report = folder / "report.json"
    dry = [*pip, "--dry-run", "--use-feature=fast-deps", "--ignore-installed", "--no-deps", "--report", str(report)]
    subprocess.run([*dry, "--requirement", str(ROOT / "requirements-dev.lock")], check=True)
    found = {one["metadata"]["name"]: one["metadata"]["version"] for one in json.loads(report.read_bytes())["install"]}
    return str(found["torch"])


def interpreter(version: str) -> str | None:
    """The path of an interpreter that runs: from PATH, or of pyenv."""
    roots = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = [shutil.which(f"python{version}"), *map(str, roots.glob(f"versions/{version}.*/bin/python"))]
    check = f"import sys, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-I", "-c", check], check=False, capture_output=True).returncode == 0:
            return candidate
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every-python", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    options = parser.parse_args()
    every_python(options.cuda) if options.every_python else here()
