"""`make setup` with pip, and package indexes on loopback: which torch it installs, what it prints, how it fails."""

from __future__ import annotations

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import empty_wheel
import pytest
from empty_wheel import write_wheel

from gliner_bento.settings import PROJECT_ROOT

PROJECT = """\
[build-system]
requires = []
build-backend = "empty_wheel"
backend-path = ["."]

[project]
name = "gliner-bento"
version = "0"
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def indexes(tmp_path_factory) -> Iterator[str]:
    """The URL of two package indexes: /pypi has a torch as PyPI has it, /cpu one as PyTorch's index of CPU builds."""
    root = tmp_path_factory.mktemp("indexes")
    write_wheel(root / "pypi" / "torch", "torch", "2.13.0")
    write_wheel(root / "pypi" / "served", "served", "1.0")
    write_wheel(root / "pypi" / "tested", "tested", "1.0")
    write_wheel(root / "pypi" / "zensical", "zensical", "1.0")
    write_wheel(root / "pypi" / "zensical", "zensical", "2.0")
    write_wheel(root / "cpu" / "torch", "torch", "2.13.0+cpu")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Checkout:
    """A project with our Makefile and tools, and small locks."""

    def __init__(self, folder: Path, indexes: str) -> None:
        self.folder, self.indexes = folder, indexes
        self.bin = folder / "bin"
        """First on PATH."""
        self.bin.mkdir(parents=True)
        shutil.copytree(PROJECT_ROOT / "tools", folder / "tools")
        shutil.copy(PROJECT_ROOT / "Makefile", folder)
        (folder / "pyproject.toml").write_text(PROJECT)
        shutil.copy(empty_wheel.__file__, folder)
        (folder / "requirements.lock").write_text("served==1.0\ntorch==2.13.0\n")
        (folder / "requirements-dev.lock").write_text("-r requirements.lock\ntested==1.0\nzensical==1.0\n")

    def make(self, target: str, *, succeeds: bool = True, **variables: str) -> str:
        """The output of make."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "TORCH"))}
        environment |= {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{self.indexes}/pypi",
            "PIP_RETRIES": "0",
        }
        variables = {"TORCH_INDEX": f"{self.indexes}/cpu", **variables}
        command = ["make", "--no-print-directory", target, *(f"{name}={value}" for name, value in variables.items())]
        ended = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert (ended.returncode == 0) is succeeds, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def executable(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def installed(self) -> dict[str, str]:
        """Names and versions, without pip and setuptools."""
        packages = (path.name.removesuffix(".dist-info").split("-") for path in self.folder.rglob("*.dist-info"))
        return {name: version for name, version in packages if name not in ("pip", "setuptools")}


@pytest.fixture(scope="module")
def environment(tmp_path_factory, indexes) -> Path:
    """The folder of a checkout where `make setup` ran for CPUs."""
    checkout = Checkout(tmp_path_factory.mktemp("setup") / "checkout", indexes)
    output = checkout.make("setup", TORCH="cpu", PYTHON=sys.executable)
    (checkout.folder / "output").write_text(output)
    return checkout.folder


@pytest.fixture
def checkout(environment, indexes) -> Checkout:
    """The same checkout in each test; only `.venv` differs from one to the next."""
    checkout = Checkout.__new__(Checkout)
    checkout.folder, checkout.indexes, checkout.bin = environment, indexes, environment / "bin"
    return checkout


@pytest.fixture
def empty(tmp_path, indexes) -> Checkout:
    """A checkout without an environment."""
    return Checkout(tmp_path / "checkout", indexes)


def test_serving_gets_the_cpu_build_and_no_developer_tools_and_says_so_in_a_line_per_step(checkout):
    assert checkout.installed() == {"torch": "2.13.0+cpu", "served": "1.0", "gliner_bento": "0"}
    lines = (checkout.folder / "output").read_text().splitlines()
    steps = [re.sub(r"\d+ (s|MB)", r"N \1", line.removeprefix("set-up: ")) for line in lines]
    assert steps == [
        f".venv with Python {sys.version.split()[0]} ... N s",
        "torch 2.13.0, cpu build ... N s",
        "packages of requirements.lock ... N s",
        "gliner-bento ... N s",
        "done in N s, .venv has N MB",
    ]


def test_nothing_is_installed_twice_and_the_choice_of_torch_stays(checkout):
    checkout.executable("nvidia-smi", "exit 0")
    assert checkout.make("setup") == ""


def test_a_driver_decides_and_the_builds_of_torch_replace_each_other(checkout):
    checkout.executable("nvidia-smi", "exit 0")
    (checkout.folder / ".venv" / ".torch").unlink()
    assert "torch 2.13.0, cuda build" in checkout.make("setup")
    assert checkout.installed()["torch"] == "2.13.0"

    output = checkout.make("setup", TORCH="cpu", TORCH_INDEX="http://127.0.0.1:9/cpu")
    assert output.count("no answer from http://127.0.0.1:9/cpu") == 1
    assert "torch 2.13.0, the build that pip finds ..." in output
    assert checkout.installed()["torch"] == "2.13.0"

    (checkout.folder / ".venv" / ".serve").unlink()
    assert "torch 2.13.0, cpu build" in checkout.make("setup", TORCH="cpu")
    assert checkout.installed()["torch"] == "2.13.0+cpu"


def test_the_docs_get_their_locked_tool_and_no_others(empty):
    shutil.rmtree(empty.folder / "tools" / "docs_site")  # needs a server's packages: tools/fresh_clone.py runs it
    (empty.folder / "tools" / "docs_site.py").write_text("print('built')")
    output = empty.make("docs", TORCH="cpu", PYTHON=sys.executable)
    assert output.endswith("-m tools.docs_site build\nbuilt\n")
    assert empty.installed() == {"torch": "2.13.0+cpu", "served": "1.0", "gliner_bento": "0", "zensical": "1.0"}


def test_developer_tools_are_installed_on_top(checkout):
    output = checkout.make("setup-dev", TORCH="cpu", V="1")
    assert "Successfully installed tested-1.0 zensical-1.0" in output
    assert checkout.installed()["tested"] == "1.0"
    assert checkout.make("setup-dev", TORCH="cpu") == ""


def test_a_failed_step_shows_the_end_of_its_output_and_is_repeated(checkout):
    lock = checkout.folder / "requirements-dev.lock"
    good = lock.read_text()
    lock.write_text("-r requirements.lock\nunknown-package==1.0\n")
    output = checkout.make("setup-dev", TORCH="cpu", succeeds=False)
    assert "No matching distribution found for unknown-package==1.0" in output
    assert "set-up: packages of requirements-dev.lock failed; all output is in .venv/setup.log, V=1" in output
    assert "Traceback" not in output
    checkout.make("setup-dev", TORCH="cpu", succeeds=False)
    lock.write_text(good)
    checkout.make("setup-dev", TORCH="cpu")


def test_an_unknown_build_of_torch_is_refused(checkout):
    assert "set-up: TORCH=gpu: must be cpu or cuda" in checkout.make("setup", TORCH="gpu", succeeds=False)


def test_an_interpreter_that_does_not_run_is_one_line(empty):
    empty.executable("python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    output = empty.make("setup", PYTHON="python3.12", succeeds=False)
    assert output.splitlines()[:-1] == [
        "make: PYTHON=python3.12 cannot be used (pyenv: python3.12: command not found): "
        "set it to the path of a Python >= 3.10 with venv"
    ]


def test_shims_that_do_not_run_are_skipped(empty):
    for name in ("python3.11", "python3"):
        empty.executable(name, "exit 127")
    for name in ("python3.12", "python3.13", "python3.14", "python3.10"):
        empty.executable(name, f'echo {name} >>chosen; [ "$2" = -c ] && exec {sys.executable} "$@"; exit 0')
    empty.make("setup")
    assert (empty.folder / "chosen").read_text().split() == ["python3.12", "python3.12"]


def test_the_help_fits_a_terminal_and_has_every_target_in_one_of_two_groups(checkout):
    users, maintainers = checkout.make("help").strip().split("\n\n")
    assert max(map(len, f"{users}\n{maintainers}".splitlines())) <= 80
    assert users.startswith("For users; TORCH=cpu or TORCH=cuda chooses")
    listed = [set(re.findall(r"^  make (\S+) +\S", group, re.MULTILINE)) for group in (users, maintainers)]
    assert {"serve", "test", "dist"} <= listed[0]
    assert {"lint", "chaos", "demo-model"} <= listed[1]
    makefile = (PROJECT_ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)) - {"setup-bench"}
    assert listed[0] | listed[1] == targets
    assert not listed[0] & listed[1]
