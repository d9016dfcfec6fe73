"""Podman: builds the image of the bento on a base of Debian packages, and runs it as a cautious operator would.

Needs no registry. In the build, pip is configured as on this machine (indexes, certificates, folders of wheels).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from deploy.containers import pip_configuration
from gliner_bento.settings import PROJECT_ROOT

BASE = "localhost/gliner-bento-base:bookworm"
_DEBIAN = ("bookworm", "http://deb.debian.org/debian")
_PACKAGES = "ca-certificates,python3,python3-pip,python3-venv"
_CLIENT = "/client"
_DOCKER = PROJECT_ROOT / "deploy" / "docker"
_PROBE_S = 5.0
RESTRICTIONS = (
    *("--network", "none", "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp"),
    *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
)
ASK = """
import json, sys, urllib.error, urllib.request
path, headers, body = json.load(sys.stdin)
data = None if body is None else json.dumps(body).encode()
request = urllib.request.Request("http://127.0.0.1:3000" + path, data, {"Content-Type": "application/json", **headers})
try:
    with urllib.request.urlopen(request, timeout=60) as response:
        print(json.dumps([response.status, response.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, error.read().decode()]))
"""


class ContainerError(Exception):
    """The image cannot be tried, or a command of podman failed. The message is one line."""


def podman(*arguments: str, given: str | None = None) -> str:
    """What a podman command prints. Raises `ContainerError`."""
    if not shutil.which("podman"):
        raise ContainerError("podman is not installed")
    ended = subprocess.run(["podman", *arguments], input=given, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ContainerError(f"podman {arguments[0]}: {(ended.stderr.strip().splitlines() or ['failed'])[-1]}")
    return ended.stdout.strip()


def make_base() -> None:
    """Make the image `BASE` of Debian's packages, unless it exists."""
    if podman("images", "--quiet", BASE):
        return
    if not shutil.which("mmdebstrap"):
        raise ContainerError("mmdebstrap is not installed, which makes the base image; or name one with --base")
    with tempfile.TemporaryDirectory(prefix="debian-") as folder:
        archive = Path(folder) / "base.tar"
        bootstrap = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", _DEBIAN[0], str(archive)]
        subprocess.run([*bootstrap, _DEBIAN[1]], check=True)
        podman("import", str(archive), BASE)


def build(base: str, torch: str) -> str:
    """Build a bento and its image with `make image`'s script; the image's name. The build's output goes to stderr."""
    for arguments in (["-m", "tools.docs_site", "build"], ["tools/dependencies.py", "sbom", "sbom.cdx.json"]):
        subprocess.run([sys.executable, *arguments], cwd=PROJECT_ROOT, check=True, stdout=sys.stderr)
    bentoml = [sys.executable, "-m", "bentoml"]
    built = subprocess.run(
        [*bentoml, "build", "--output", "tag", str(PROJECT_ROOT)], check=True, stdout=subprocess.PIPE, text=True
    )
    tag = built.stdout.strip().splitlines()[-1].removeprefix("__tag__:")
    found = subprocess.run([*bentoml, "get", tag, "--output", "path"], check=True, stdout=subprocess.PIPE, text=True)
    environment = os.environ | {"ENGINE": "podman", "BASE": base, "TORCH": torch}
    if not _reaches_pytorch():
        environment.setdefault("TORCH_INDEX", "")
    with tempfile.TemporaryDirectory(prefix="pip-") as folder:
        configuration, named = pip_configuration.write(Path(folder))
        volumes = [word for path in named for word in ("--volume", f"{path}:{path}:ro")]
        subprocess.run(
            [_DOCKER / "build", found.stdout.strip(), *volumes],
            env=environment | {"PIP_CONFIG_FILE": str(configuration)},
            check=True,
            stdout=sys.stderr,
        )
    return tag if torch == "cpu" else f"{tag}-{torch}"


def _reaches_pytorch() -> bool:
    """Whether PyTorch's index answers. If not, pip would try it again and again for each package."""
    dockerfile = (_DOCKER / "Dockerfile").read_text(encoding="utf-8")
    (index,) = re.findall(r"^ARG TORCH_INDEX=(\S+)", dockerfile, re.MULTILINE)
    try:
        return httpx.get(f"{index}/torch/", timeout=_PROBE_S).is_success
    except httpx.TransportError:
        return False


class Container:
    """A running container. The server inside answers on loopback only: the container has no network."""

    def __init__(self, name: str, image: str) -> None:
        self.name, self.image = name, image

    def execute(self, *command: str, given: str | None = None) -> str:
        """What a command inside prints, run as the image's user."""
        return podman("exec", "--interactive", self.name, *command, given=given)

    def find(self, expression: str) -> list[str]:
        """Paths of the image's file system for which a find expression is true."""
        return self.execute("sh", "-c", f"find / -xdev {expression} 2>/dev/null || true").splitlines()

    def ask(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Status and body of a request from inside: POST if it has a body. Status 0: no answer."""
        try:
            status, content = json.loads(
                self.execute("python3", "-c", ASK, given=json.dumps([path, headers or {}, body]))
            )
        except ContainerError as error:
            return 0, str(error)
        return int(status), str(content)

    def wait_healthy(self, limit_s: float) -> float | None:
        """Seconds until the image's HEALTHCHECK says healthy; None if it does not within `limit_s`.

        Podman's timers need systemd, so the check is run from here.
        """
        began_s = time.monotonic()
        while time.monotonic() - began_s < limit_s:
            subprocess.run(["podman", "healthcheck", "run", self.name], check=False, capture_output=True)
            if podman("inspect", "--format", "{{.State.Health.Status}}", self.name) == "healthy":
                return time.monotonic() - began_s
            time.sleep(0.5)
        return None

    def start_client(self, module: str) -> subprocess.Popen[str]:
        """Run a module of this checkout in a second container, which shares the first one's network and outlives it."""
        volumes = [f"--volume={PROJECT_ROOT / name}:{_CLIENT}/{name}:ro" for name in ("deploy", "reliability")]
        path = f"PYTHONPATH={_CLIENT}:/home/bentoml/bento/src"
        command = ["podman", "run", "--rm", "--interactive", "--network", f"container:{self.name}", *volumes]
        command += ["--no-healthcheck", "--env", path, self.image, "python3", "-m", module]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def state(self) -> dict[str, Any]:
        """Podman's description of the container's state."""
        state: dict[str, Any] = json.loads(podman("inspect", "--format", "{{json .State}}", self.name))
        return state


@contextmanager
def running(image: str, settings: Mapping[str, str], options: Sequence[str] = ()) -> Iterator[Container]:
    """A container of `image` under the restrictions, removed at the end. settings: environment variables."""
    variables = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    arguments = ["run", "--detach", "--stop-timeout", "30", *RESTRICTIONS, *options, *variables, image]
    container = Container(podman(*arguments), image)
    try:
        yield container
    finally:
        podman("rm", "--force", "--time", "5", container.name)
