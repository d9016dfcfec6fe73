"""What a stranger does with the artefacts: the README's lines in a clean root, and the way from 0.1.0 and back.

A clean root has Debian's Python and nothing else. pip finds this project's packages on the index that is given, and
others where pip finds them on this machine.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import places
from .debian import CleanRoot
from .places import ROOT
from .processes import clean, free_port, running, wait_for
from .table import NotHere, output_of

sys.path.insert(0, str(ROOT / "tools"))
import first_answer
import fresh_clone
import install

_README = (ROOT / "README.md").read_text(encoding="utf-8")
_LAST_OF_0_1_0 = "2794e795"
_SETTINGS_OF_0_1_0 = """\
gliner:
  model: models/demo
  device: cpu
  max_batch_size: 16
  default_threshold: 0.4
  request_timeout_s: 20
services:
  GLiNERService:
    workers: 1
"""


def readme(folder: Path, index: str) -> str:
    """The README's and the quickstart's lines, in their order, with Debian 12's Python."""
    root = clean_root(folder, "bookworm", "curl,python3-venv", index)
    root.run("python3 -m venv /venv")
    began = time.monotonic()
    version = re.search(r"^torch==(.+)$", install.LOCK.read_text(), re.MULTILINE)
    assert version
    with contextlib.redirect_stdout(io.StringIO()):  # it says which index it asks
        _, torch = install.torch_requirement("cpu", version[1])
    root.run(f"pip install --quiet {' '.join(torch)}")
    installs, serves = readme_block("pip install").strip().split(" && ")
    root.run(installs)
    installed = time.monotonic()
    with serving(root, serves) as url:
        ready = time.monotonic()
        answer = json.loads(root.run(readme_block("curl").replace("localhost:3000", url.removeprefix("http://"))))
        if predictions(answer) != predictions(json.loads(readme_block("{"))):
            raise ValueError(f"the README's request has another answer: {answer}")
        lines, shown = fresh_clone.quickstart_blocks(url)
        printed = root.run("cd /root\n" + lines.replace("source .venv/bin/activate\n", ""))
        if missing := [code for code in shown if code not in printed]:
            raise ValueError(f"the quickstart shows {missing[0]!r}, and this was printed: {printed[-300:]}")
        if 'id="gliner-bento"' not in wait_for(f"{url}/docs"):
            raise ValueError("/docs is not the site")
    size = install.megabytes(root.folder / "venv")
    times = f"pip {installed - began:.0f} s, {size} MB, ready after {ready - installed:.0f} s"
    return f"{times}; the README's request and the quickstart's commands print what is shown"


def newest_python(folder: Path, index: str, version: str) -> str:
    """Client and server with a Python that only Debian's next release has, and its torch."""
    root = clean_root(folder, "forky", "python3-venv,python3-torch", index)
    root.run("python3 -m venv --system-site-packages /venv")
    found = root.run("python3 -c 'import platform; print(platform.python_version())'").strip()
    if not found.startswith(f"{version}."):
        raise NotHere(f"Debian's next release has Python {found}")
    root.run('pip install "gliner-bento[serve]" && pip check')
    with serving(root, "gliner-bento serve") as url:
        ask = "gliner-bento extract 'Ada Lovelace lived in London.' --labels person,city"
        shown = "Ada Lovelace [person] lived in London [city]."
        if shown not in root.run(f"{ask} --url {url}") or shown not in root.run(ask):
            raise ValueError(f"{ask} does not print {shown}")
    torch = root.run("python -c 'import torch; print(torch.__version__)'").strip()
    return f"Python {found}, torch {torch}: pip install, pip check, serve, extract --url, extract in process"


def upgrade(folder: Path, programs: Path, packages: Path) -> str:
    """A settings file of 0.1.0 in 0.1.0, in this version, with this version's keys, and in 0.1.0 again.

    programs: of an environment with this version. packages: of one with all that both need, and neither of them.
    """
    old, mine, ours = folder / "0.1.0", folder / "settings.yaml", folder / "with-keys.yaml"
    unpack_old(old)
    mine.write_text(_SETTINGS_OF_0_1_0)
    before = [str(packages / "python"), "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--config"]
    now = [str(programs / "gliner-bento"), "serve", "--port", "{port}", "--config"]
    with_old = clean() | {"PYTHONPATH": str(old)}
    log = folder / "upgrade.log"
    with first_answer.served([*before, str(mine)], folder, log, with_old):
        pass
    with first_answer.served([*now, str(mine)], folder, log, clean()):
        pass
    made = subprocess.run(
        [programs / "gliner-bento", "keys", "new", "app"], env=clean(), capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise ValueError(f"keys new: exit code {made.returncode}: {made.stderr[-300:]}")
    [key] = re.findall(r"gliner_[\w-]+$", made.stderr.strip())
    (folder / "keys.yaml").write_text(made.stdout)
    ours.write_text(_SETTINGS_OF_0_1_0.replace("services:", f"  api_keys: {folder / 'keys.yaml'}\nservices:"))
    port = free_port()
    with running([word.format(port=port) for word in [*now, str(ours)]], log, clean()):
        wait_for(f"http://127.0.0.1:{port}/readyz")
        statuses = [status_of(port), status_of(port, key)]
    refused = subprocess.run(
        [*before[:-3], "--config", str(ours)], cwd=folder, env=with_old, capture_output=True, text=True, check=False
    )
    if statuses != [401, 200] or refused.returncode == 0 or "api_keys" not in refused.stderr:
        raise ValueError(f"statuses without and with a key: {statuses}; 0.1.0 with keys: {refused.stderr[-300:]}")
    with first_answer.served([*before, str(mine)], folder, log, with_old):
        pass
    return "the same settings file before, after and again; with api_keys 401 and 200; 0.1.0 names api_keys and refuses"


def clean_root(folder: Path, suite: str, packages: str, index: str) -> CleanRoot:
    """A clean root whose pip also knows the index, and takes this version of the project from it."""
    packages = f"ca-certificates,{packages}"
    root = CleanRoot(folder, suite, packages, extra_index_url=index, constraint="/pins.txt")
    (root.folder / "pins.txt").write_text(f"gliner-bento=={places.version()}\n")
    return root


def readme_block(beginning: str) -> str:
    """The first block of code in the README that begins so."""
    return next(str(code) for _, code, _ in fresh_clone.CODE.findall(_README) if code.startswith(beginning))


@contextlib.contextmanager
def serving(root: CleanRoot, command: str) -> Iterator[str]:
    """The URL of a server in the root, once it is ready."""
    port = free_port()
    words, environment = root.command(f"exec {command} --port {port}")
    log = root.folder.with_suffix(".log")
    with running(words, log, environment):
        url = f"http://127.0.0.1:{port}"
        try:
            wait_for(f"{url}/readyz")
        except ValueError as problem:
            raise ValueError(f"{problem}: {' / '.join(log.read_text(errors='replace').splitlines()[-4:])}") from None
        yield url


def predictions(answer: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Entities and relations of an answer, without scores."""
    entities = {(one["start"], one["end"], one["text"], one["label"]) for one in answer["entities"]}
    return entities | {(one["head"]["text"], one["relation"], one["tail"]["text"]) for one in answer["relations"]}


def unpack_old(folder: Path) -> None:
    """The last commit of 0.1.0. Raises NotHere in a shallow clone, which may lack it: 0.1.0 was never published."""
    not_in_shallow_clones()
    archive = subprocess.run(["git", "archive", _LAST_OF_0_1_0], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def not_in_shallow_clones() -> None:
    """Raises NotHere in one."""
    if output_of("git", "rev-parse", "--is-shallow-repository", cwd=ROOT).strip() == "true":
        raise NotHere("this clone is shallow")


def status_of(port: int, key: str | None = None) -> int:
    """The status of a request with or without an API key."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = json.dumps(first_answer.REQUEST).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/extract", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
