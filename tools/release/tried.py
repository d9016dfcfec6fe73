"""What a release publishes, built from a clone and used as a stranger would: the rows of check.py that take minutes.

The environment of the server has the packages of .venv, in the versions of requirements.lock, but for those of this
project; those of clients are new, with what pip finds on its index.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import places, site
from .places import ROOT
from .table import NotHere, Step, output_of
from .tools import program

sys.path.insert(0, str(ROOT / "tools"))
import first_answer
import fresh_clone

VERSIONS = (*first_answer.VERSIONS, "3.14")
DIST = ROOT / "dist"
_LIGHT = ("bulk", "completion", "dataframes", "graph", "mcp", "otel", "redis")
_IMPORTS = "import mcp, networkx, opentelemetry.sdk, pandas, polars, pyarrow, redis, shtab"
_TEXT = "Ada Lovelace lived in London."
_SHOWN = "Ada Lovelace [person] lived in London [city]."
_START_S = 60
Words = list[str | Path]


def pip_of(programs: Path) -> Words:
    """`pip install` of an environment, by the folder of its programs."""
    options = ("--quiet", "--no-cache-dir", "--disable-pip-version-check")
    return [programs / "python", "-m", "pip", "install", *options]


class Trial(ExitStack):
    """The steps, in order, in a temporary folder. Leaving it ends the servers."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._clone = folder / "clone"
        self._url = self._server = ""

    def clone(self) -> str:
        """A shallow clone of HEAD."""
        output_of("git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", self._clone)
        return output_of("git", "log", "-1", "--format=%h %s", cwd=self._clone)

    def build(self) -> str:
        """Build site and artefacts in the clone. RELEASE_DIST=keep: what is in `dist` stays, and is tested."""
        self._run("-m", "tools.docs_site", "build")
        output_of(
            self._clone / "tools" / "distributions", sys.executable, self._clone / "dist", env=self._environment()
        )
        if os.environ.get("RELEASE_DIST") != "keep":
            DIST.mkdir(exist_ok=True)
            for old in [*DIST.glob("gliner_bento*"), *DIST.glob("SHA256SUMS")]:
                old.unlink()
            for new in (self._clone / "dist").iterdir():
                shutil.copy2(new, DIST)
        return ", ".join(f"{one.name} {one.stat().st_size / 1e6:.1f} MB" for one in artefacts(DIST))

    def build_again(self) -> str:
        """A second build has the same wheels, byte for byte, and sdists with the same files."""
        again = self._folder / "again"
        output_of(self._clone / "tools" / "distributions", sys.executable, again, env=self._environment())
        for one in artefacts(again):
            same = (
                contents(one) == contents(DIST / one.name)
                if one.suffix == ".gz"
                else digest(one) == digest(DIST / one.name)
            )
            if not same:
                raise ValueError(f"{one.name} differs from a second build")
        return "wheels byte for byte, sdists file for file"

    def inspect(self) -> str:
        """Metadata, and files that do not belong into a wheel."""
        found = artefacts(DIST)
        output_of(program("twine"), "check", "--strict", *found)
        code, model = (one for one in found if one.suffix == ".whl")
        output_of(program("check-wheel-contents"), code, cwd=self._clone)
        output_of(program("check-wheel-contents"), "--no-config", model)
        return "no reports"

    def index(self) -> str:
        """A package index on loopback."""
        port = free_port()
        command = [
            program("pypi-server"),
            "run",
            "--interface",
            "127.0.0.1",
            "--port",
            port,
            "--disable-fallback",
            DIST,
        ]
        self.enter_context(running(*map(str, command), log=self._folder / "index.log"))
        self._url = f"http://127.0.0.1:{port}/simple/"
        page = wait_for(self._url)
        if "gliner-bento-demo" not in page:
            raise ValueError(f"the index lists {page}")
        return "pypiserver lists both packages"

    def server(self) -> str:
        """`pip install "gliner-bento[serve]"` from the index, and all of it offline: serve, the model, the site."""
        trial = fresh_clone.Trial(self._folder)
        trial.environment |= {"HF_HUB_OFFLINE": "1"}
        programs = trial.fresh("server")
        pip: Words = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            programs / "python",
            "install",
            "--quiet",
            "--no-cache-dir",
        ]
        output_of(*pip, "--index-url", self._url, f"gliner-bento[serve]=={places.version()}", env=clean())
        listed = output_of(programs / "gliner-bento", "models", "list", cwd=self._folder, env=clean())
        try:
            self._server = self.enter_context(trial.serve(str(programs / "gliner-bento"), "serve"))
        except SystemExit as problem:
            raise ValueError(str(problem)) from None
        here = output_of(
            programs / "gliner-bento", "extract", _TEXT, "--labels", "person,city", cwd=self._folder, env=clean()
        )
        if _SHOWN not in here or "gliner_bento_demo/demo" not in listed:
            raise ValueError(f"{here} {listed}")
        return "pip install, models list, serve, /docs, extract in process; HF_HUB_OFFLINE=1"

    def client(self, version: str) -> Step:
        """The step that installs the client with an interpreter and asks the server."""

        def step() -> str:
            programs = self._new_environment(version)
            pip = pip_of(programs)
            package = f"gliner-bento=={places.version()}"
            output_of(*pip, "--no-deps", "--index-url", self._url, package, env=clean())
            output_of(*pip, package, env=clean())
            output_of(programs / "python", "-m", "pip", "check", env=clean())
            shown = output_of(programs / "gliner-bento", "--version", env=clean()).strip()
            ask: Words = [programs / "gliner-bento", "extract", _TEXT, "--labels", "person,city", "--url", self._server]
            if shown != places.version() or _SHOWN not in output_of(*ask, env=clean()):
                raise ValueError(f"--version: {shown}; no entities from the server")
            count = len(json.loads(output_of(programs / "python", "-m", "pip", "list", "--format=json", env=clean())))
            return f"{count} packages; --version, pip check, extract --url"

        return step

    def extras(self) -> str:
        """The extras without torch, installed together beside the first client."""
        programs = self._environment_of(VERSIONS[1])
        names = ",".join(_LIGHT)
        pip = pip_of(programs)
        output_of(*pip, f"gliner-bento[{names}]=={places.version()}", env=clean())
        output_of(programs / "python", "-c", _IMPORTS, env=clean())
        return f"{names}: installed and imported"

    def from_git(self) -> str:
        """pip builds the package from the clone. `git+file` would not do: git fetches forever from a shallow clone."""
        programs = self._environment_of(VERSIONS[1])
        pip: Words = [programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
        output_of(*pip, self._clone, env=clean())
        return output_of(programs / "gliner-bento", "--version", env=clean())

    def chart(self) -> str:
        """helm lint, package and template."""
        folder = Path(output_of(sys.executable, ROOT / "tools" / "kubernetes_tools.py").splitlines()[-1])
        helm, chart = folder / "helm", self._clone / "deploy" / "helm" / "gliner-bento"
        output_of(helm, "lint", "--strict", chart, "--set", "allowAnonymous=true")
        output_of(helm, "package", chart, "--destination", self._folder)
        packed = self._folder / f"gliner-bento-{places.version()}.tgz"
        drawn = output_of(helm, "template", packed, "--set", "allowAnonymous=true")
        wanted = f"{places.names()['registry']}/gliner-bento:{places.version()}"
        if wanted not in drawn:
            raise ValueError(f"the chart does not run {wanted}")
        return f"lint, {packed.name}, runs {wanted}"

    def bill(self) -> str:
        """The bill of materials of the server's packages."""
        file = self._folder / "sbom.json"
        self._run("tools/dependencies.py", "sbom", str(file))
        return f"{len(json.loads(file.read_bytes())['components'])} components"

    def audit(self) -> str:
        """The lock against the index's advisories."""
        audit: Words = [program("pip-audit"), "--requirement", ROOT / "requirements.lock", "--no-deps", "--disable-pip"]
        try:
            lines = output_of(*audit, "--progress-spinner", "off", env=clean()).splitlines()
            return next(line for line in lines if "known vulnerabilities" in line)
        except ValueError as problem:
            if "ConnectionError" in str(problem) or "ServiceError" in str(problem):
                raise NotHere(f"no answer from the advisories: {str(problem)[-120:]}") from None
            raise

    def docs(self) -> str:
        """The site in a folder of this version, and as the latest."""
        built = self._clone / site.BUILT.relative_to(ROOT)
        target = site.publish(self._folder / "published", built)
        return f"{target.name}, latest: {sum(1 for _ in target.rglob('*.html'))} pages"

    def unchanged(self) -> str:
        """The artefacts are still those that all rows were about."""
        output_of("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=DIST)
        return f"dist/SHA256SUMS {digest(DIST / 'SHA256SUMS')[:16]}"

    def _run(self, *arguments: str) -> str:
        """Python in the clone."""
        return output_of(sys.executable, *arguments, cwd=self._clone, env=self._environment())

    def _environment(self) -> dict[str, str]:
        return clean() | {"PYTHONPATH": str(self._clone)}

    def _new_environment(self, version: str) -> Path:
        """The programs of a new environment with nothing in it. Raises NotHere without that interpreter."""
        python = first_answer.interpreter(version)
        if python is None:
            raise NotHere(f"no Python {version}")
        folder = self._folder / f"client-{version}"
        output_of(python, "-m", "venv", folder)
        return folder / "bin"

    def _environment_of(self, version: str) -> Path:
        programs = self._folder / f"client-{version}" / "bin"
        if not (programs / "gliner-bento").exists():
            raise NotHere(f"there is no client with Python {version}")
        return programs


def artefacts(folder: Path) -> list[Path]:
    """Sdists and wheels."""
    return sorted(folder.glob("gliner_bento*"))


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def contents(sdist: Path) -> dict[str, str]:
    """The digest of each file of an archive."""
    with tarfile.open(sdist) as archive:
        files = {one.name: archive.extractfile(one) for one in archive.getmembers() if one.isfile()}
        return {name: hashlib.sha256(file.read()).hexdigest() for name, file in files.items() if file}


def clean() -> dict[str, str]:
    """This process's environment without settings of the server, and without other paths of modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("GLINER_", "PYTHONPATH"))}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(*command: str, log: Path) -> Iterator[None]:
    """A program that ends with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=clean())
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def wait_for(url: str) -> str:
    """The page, once there is one. Raises ValueError after a minute."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                return str(page.read().decode())
        except OSError:
            time.sleep(0.1)
    raise ValueError(f"no answer from {url}")
