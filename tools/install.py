"""Makes .venv: `install.py serve`, or `docs`, `dev` or `bench`, which include `serve`; `bench` also includes `dev`.

Standard library only. Environment: TORCH=cpu|cuda, TORCH_INDEX=URL, V=1. Prints one line per step; pip's output goes to
.venv/setup.log, or with V=1 to the terminal. Does nothing if .venv is up to date.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
LOG = VENV / "setup.log"
CHOICE = VENV / ".torch"
LOCK, DEV_LOCK = Path("requirements.lock"), Path("requirements-dev.lock")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_S = 5.0
SHOWN_LINES = 20

# Python compiles what is imported, once: that saves half of pip's time and 200 MB. Where it may not, pip has to do it.
COMPILE = "--compile" if os.environ.get("PYTHONDONTWRITEBYTECODE") else "--no-compile"
PIP = (str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", "install", COMPILE)


class Failed(Exception):
    """A step failed. The message is for the user."""


def main(level: str) -> None:
    """Install what `level` needs and is not installed."""
    torch = chosen_torch()
    tools = fingerprint("", LOCK, DEV_LOCK)
    wanted = {"serve": fingerprint(torch, LOCK), "docs": tools, "dev": tools, "bench": fingerprint("", LOCK)}
    levels = {
        "serve": lambda: install_server(torch),
        "docs": install_site_tools,
        "dev": install_tools,
        "bench": install_peers,
    }
    started, changed = time.monotonic(), False
    for name in {"docs": ("serve", "docs"), "bench": ("serve", "dev", "bench")}.get(level, ("serve", level)):
        if not stamp(name).is_file() or stamp(name).read_text() != wanted[name]:
            stamp(name).unlink(missing_ok=True)
            levels[name]()
            stamp(name).write_text(wanted[name])
            changed = True
    if changed:
        print(f"set-up: done in {time.monotonic() - started:.0f} s, {VENV} has {megabytes(VENV):,} MB", flush=True)


def install_server(torch: str) -> None:
    """What serving needs, with the given build of torch, and this project as an editable package."""
    make_environment()
    if os.environ.get("TORCH"):
        CHOICE.write_text(torch)
    version = re.search(r"^torch==([\w.]+)", LOCK.read_text(), re.MULTILINE)[1]  # type: ignore[index]
    build, requirement = torch_requirement(torch, version)
    step(f"torch {version}, {build}", *PIP, "--constraint", str(LOCK), *requirement)
    step(f"packages of {LOCK}", *PIP, "--no-deps", "--requirement", str(LOCK))
    step("gliner-bento", *PIP, "--no-deps", "--no-build-isolation", "--editable", ".")


def torch_requirement(torch: str, version: str) -> tuple[str, list[str]]:
    """The name of a build of torch, and what makes pip install it.

    A CPU build's version is 2.13.0+cpu. That is higher than 2.13.0, so `==` prefers it, and `===` never takes it.
    """
    if torch == "cuda":
        return "cuda build", [f"torch==={version}"]
    requirement = ["--upgrade", f"torch=={version}"]
    if index := cpu_index():
        return "cpu build", ["--extra-index-url", index, *requirement]
    return "the build that pip finds", requirement


def install_site_tools() -> None:
    """What builds the site of the documentation, in the versions of the developer tools: 90 MB."""
    pins = VENV / "pins.txt"  # a constraint file may not refer to another lock
    pins.write_text("".join(line for line in DEV_LOCK.open() if not line.startswith("-")))
    step("zensical, which builds the docs", *PIP, "--constraint", str(pins), "zensical")


def install_tools() -> None:
    """What tests and checks need."""
    step(f"packages of {DEV_LOCK}", *PIP, "--no-deps", "--requirement", str(DEV_LOCK))


def install_peers() -> None:
    """What the benchmark compares with. Installed packages keep their versions: those are measured.

    PolyLoRA comes without its dependency Triton (1 GB): CPUs do not need it, and the CUDA build of torch brings it.
    """
    held = VENV / "held.txt"
    frozen = [str(PYTHON), "-m", "pip", "list", "--format=freeze", "--exclude-editable"]
    held.write_bytes(subprocess.run(frozen, check=True, capture_output=True).stdout)
    step("packages of the benchmark", *PIP, "--constraint", str(held), "--editable", ".[bench]")
    step("polylora", *PIP, "--no-deps", "polylora==0.1.1")


def make_environment() -> None:
    """An environment of this interpreter's version; one of another version is replaced."""
    version = ".".join(map(str, sys.version_info[:2]))
    works = "import sys, pip; sys.exit('%d.%d' % sys.version_info[:2] != sys.argv[1])"
    check = [str(PYTHON), "-c", works, version]
    usable = PYTHON.exists() and subprocess.run(check, check=False, capture_output=True).returncode == 0
    if not usable:
        shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir(exist_ok=True)
    LOG.write_bytes(b"")
    if not usable:
        python = getattr(sys, "_base_executable", sys.executable)  # not that of the environment that was deleted
        step(f"{VENV} with Python {sys.version.split()[0]}", python, "-m", "venv", str(VENV))


def chosen_torch() -> str:
    """The build of torch, cpu or cuda: $TORCH, else what it was before, else CUDA where an NVIDIA driver is found."""
    choice = os.environ.get("TORCH") or (CHOICE.read_text() if CHOICE.is_file() else "")
    if choice not in ("", "cpu", "cuda"):
        raise Failed(f"TORCH={choice}: must be cpu or cuda")
    driver = shutil.which("nvidia-smi") or any(map(os.path.exists, ("/proc/driver/nvidia", "/dev/nvidia0")))
    return choice or ("cuda" if driver else "cpu")


def cpu_index() -> str | None:
    """The package index of CPU builds, or None if it cannot be reached. Takes a few seconds at most."""
    url = os.environ.get("TORCH_INDEX") or CPU_INDEX
    problems = [f"waited {PROBE_S:.0f} s"]

    def probe() -> None:
        try:
            trust = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
            urllib.request.urlopen(f"{url}/torch/", timeout=PROBE_S, context=trust).close()
            problems.clear()
        except (OSError, ValueError) as error:
            problems.append(str(getattr(error, "reason", error)))

    thread = threading.Thread(target=probe, daemon=True)  # name resolution has no timeout
    thread.start()
    thread.join(PROBE_S)
    if not problems:
        return url
    print(f"set-up: no answer from {url} ({problems[-1]}); pip's own index may only have the CUDA build (6 GB)")
    return None


def step(name: str, *command: str) -> None:
    """Run a command. Raises `Failed` with the end of its output."""
    verbose = os.environ.get("V", "0") not in ("", "0")
    print(f"set-up: {name} ...", end="\n" if verbose else " ", flush=True)
    started = time.monotonic()
    with LOG.open("ab") as log:
        output = None if verbose else log
        ended = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    if ended.returncode:
        tail = [] if verbose else LOG.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        print("failed", *tail, sep="\n")
        raise Failed(f"{name} failed" + ("" if verbose else f"; all output is in {LOG}, V=1 shows it"))
    print(f"{time.monotonic() - started:.0f} s", flush=True)


def stamp(level: str) -> Path:
    """The file that says what `level` was installed from."""
    return VENV / f".{level}"


def fingerprint(torch: str, *locks: Path) -> str:
    """Changes with what is installed."""
    content = b"\0".join(path.read_bytes() for path in (*locks, Path("pyproject.toml"), Path(__file__)))
    version = ".".join(map(str, sys.version_info[:2]))
    return f"{version} {torch} {hashlib.sha256(content).hexdigest()}"


def megabytes(folder: Path) -> int:
    """Disk space of a folder's files, in units of 2**20 bytes."""
    blocks = {(s.st_dev, s.st_ino): s.st_blocks for s in (path.lstat() for path in folder.rglob("*"))}
    return sum(blocks.values()) * 512 // 2**20


def run(arguments: Sequence[str]) -> int:
    try:
        main(*arguments)
    except Failed as problem:
        print(f"set-up: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
