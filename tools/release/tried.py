"""What a release publishes, built from a clone and used as a stranger would: the rows of check.py that take minutes.

The environment of the server has the packages of .venv, in the versions of requirements.lock, but for those of this
project; those of clients are new, with what pip finds on its index.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
from contextlib import ExitStack
from pathlib import Path

from . import advisories, containers, places, site, stranger
from .debian import files_of
from .places import ROOT
from .processes import Words, clean, free_port, running, wait_for
from .table import NotHere, Step, output_of
from .tools import fetched, program

sys.path.insert(0, str(ROOT / "tools"))
import first_answer
import fresh_clone

VERSIONS = first_answer.VERSIONS
_NEWEST = "3.14"  # only Debian's next release has it
DIST = ROOT / "dist"
_OTHERS = ("bench", "camel", "dev", "gliclass", "hanlp", "serve", "stanza", "universal")
"""Extras that bring torch, or that only developers need."""
_IMPORTS = (
    "import haystack, indicnlp, janome, jieba, jieba3, lxml, mcp, mecab, networkx, onnxruntime, opentelemetry.sdk, "
    "pandas, polars, pyarrow, pypdf, ray, redis, shtab, spacy"
)
_TEXT = "Ada Lovelace lived in London."
_SHOWN = "Ada Lovelace [person] lived in London [city]."


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
        self._helm = folder / "helm"
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
        where = ("--interface", "127.0.0.1", "--port", str(port))
        command: Words = [program("pypi-server"), "run", *where, "--disable-fallback", DIST]
        self.enter_context(running(command, self._folder / "index.log"))
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
        pip: Words = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
        output_of(
            *pip, "--no-cache-dir", "--index-url", self._url, f"gliner-bento[serve]=={places.version()}", env=clean()
        )
        listed = output_of(programs / "gliner-bento", "models", "list", cwd=self._folder, env=clean())
        self._server = self.enter_context(trial.serve(str(programs / "gliner-bento"), "serve"))
        here = output_of(
            programs / "gliner-bento", "extract", _TEXT, "--labels", "person,city", cwd=self._folder, env=clean()
        )
        if _SHOWN not in here or "gliner_bento_demo/demo" not in listed:
            raise ValueError(f"{here} {listed}")
        return "pip install, models list, serve, /docs, extract in process; HF_HUB_OFFLINE=1"

    def readme(self) -> str:
        """The README's lines in a clean root."""
        return stranger.readme(self._folder / "stranger", self._url)

    def newest_python(self) -> str:
        """Client and server with Python 3.14."""
        return stranger.newest_python(self._folder / "newest", self._url, _NEWEST)

    def upgrade(self) -> str:
        """A settings file from 0.1.0 to this version and back."""
        folder = self._folder / "upgrade"
        folder.mkdir()
        return stranger.upgrade(folder, self._folder / "server" / "bin", fresh_clone.Trial(folder).fresh("packages"))

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
        """The extras without torch, installed together beside a client."""
        programs = self._environment_of(VERSIONS[1])
        listed = "from importlib.metadata import metadata; print(*metadata('gliner-bento').get_all('Provides-Extra'))"
        extras = output_of(programs / "python", "-c", listed, env=clean()).split()
        names = ",".join(sorted({*extras} - {*_OTHERS}))
        pip = pip_of(programs)
        output_of(*pip, f"gliner-bento[{names}]=={places.version()}", env=clean())
        output_of(programs / "python", "-W", "ignore", "-c", _IMPORTS, env=clean())
        return f"{names}: installed and imported"

    def from_git(self) -> str:
        """`pip install git+file://...`, as of a repository. Git fetches forever from a shallow clone."""
        programs = self._environment_of(VERSIONS[1])
        stranger.not_in_shallow_clones()
        pip = [*pip_of(programs), "--no-deps", "--force-reinstall"]
        output_of(*pip, f"git+file://{ROOT}@{output_of('git', 'rev-parse', 'HEAD', cwd=ROOT).strip()}", env=clean())
        return output_of(programs / "gliner-bento", "--version", env=clean())

    def chart(self) -> str:
        """helm lint, package and template."""
        folder = Path(fetched(sys.executable, ROOT / "tools" / "kubernetes_tools.py").splitlines()[-1])
        self._helm = helm = folder / "helm"
        chart = self._clone / "deploy" / "helm" / "gliner-bento"
        output_of(helm, "lint", "--strict", chart, "--set", "allowAnonymous=true")
        output_of(helm, "package", chart, "--destination", self._folder)
        packed = self._folder / f"gliner-bento-{places.version()}.tgz"
        drawn = output_of(helm, "template", packed, "--set", "allowAnonymous=true")
        wanted = f"{places.names()['registry']}/gliner-bento:{places.version()}"
        if wanted not in drawn:
            raise ValueError(f"the chart does not run {wanted}")
        return f"lint, {packed.name}, runs {wanted}"

    def pulled(self) -> str:
        """The packaged chart, pushed to a registry on loopback and pulled back."""
        registry = files_of("docker-registry") / "usr" / "bin" / "docker-registry"
        port, configuration = free_port(), self._folder / "registry.json"
        storage = {"filesystem": {"rootdirectory": str(self._folder / "registry")}}
        configuration.write_text(
            json.dumps({"version": 0.1, "storage": storage, "http": {"addr": f"127.0.0.1:{port}"}})
        )
        packed, address = self._folder / f"gliner-bento-{places.version()}.tgz", f"oci://127.0.0.1:{port}/charts"
        pulled = self._folder / "pulled"
        pulled.mkdir()
        with running([registry, "serve", configuration], self._folder / "registry.log"):
            wait_for(f"http://127.0.0.1:{port}/v2/")
            output_of(self._helm, "push", packed, address, "--plain-http")
            pull: Words = [self._helm, "pull", f"{address}/gliner-bento", "--version", places.version(), "--plain-http"]
            output_of(*pull, "--destination", pulled)
        if digest(pulled / packed.name) != digest(packed):
            raise ValueError("the chart that was pulled is not the one that was pushed")
        return f"pushed to and pulled from {address.replace(str(port), 'PORT')}, the same file"

    def bill(self) -> str:
        """The bill of materials of the server's packages, and of Debian's where dpkg-query lists some."""
        file, debian = self._folder / "sbom.json", self._folder / "packages.tsv"
        query = "if command -v dpkg-query >/dev/null; then dpkg-query --show --showformat '{}'; fi"
        columns = "${Package}\\t${Version}\\t${Architecture}\\n"
        debian.write_text(output_of("bash", "-c", query.replace("{}", columns)))
        self._run("tools/dependencies.py", "sbom", str(file), str(debian))
        purls = [one.get("purl", "") for one in json.loads(file.read_bytes())["components"]]
        return f"{len(purls)} components, {sum(purl.startswith('pkg:deb/') for purl in purls)} of them Debian's"

    def audit(self) -> str:
        """The lock against the index's advisories."""
        return advisories.audit(program("pip-audit"), ROOT / "requirements.lock")

    def docs(self) -> str:
        """The site in a folder of this version, and as the latest."""
        built = self._clone / site.BUILT.relative_to(ROOT)
        target = site.publish(self._folder / "published", built)
        return f"{target.name}, latest: {sum(1 for _ in target.rglob('*.html'))} pages"

    def context(self) -> str:
        """Two builds of the image's context have the same files, but for the time and the version of a bento."""
        self._run("tools/dependencies.py", "sbom", "sbom.cdx.json")
        first, second = (contents_of_folder(self._bento(name)) for name in ("bento", "bento-again"))
        if different := sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name)):
            raise ValueError(f"these files differ: {', '.join(different)}")
        return f"{len(first)} files byte for byte; of bento.yaml, all but its time and version"

    def image(self) -> str:
        """The image, from the clone."""
        return containers.image(self._clone, self._folder)

    def _bento(self, name: str) -> Path:
        """Build a bento in a store of its own. Returns its folder."""
        home = self._folder / name
        home.mkdir()
        command = [sys.executable, "-m", "bentoml", "build", "--output", "tag"]
        output_of(*command, cwd=self._clone, env=self._environment() | {"BENTOML_HOME": str(home)})
        [bento] = home.glob("bentos/gliner-bento/*/bento.yaml")
        return bento.parent

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
        folder = self._folder / f"client-{version}"
        output_of(interpreter(version), "-m", "venv", folder)
        return folder / "bin"

    def _environment_of(self, version: str) -> Path:
        """The programs of a client's environment. Raises NotHere without that interpreter, ValueError if that client
        could not be installed."""
        interpreter(version)
        programs = self._folder / f"client-{version}" / "bin"
        if not (programs / "gliner-bento").exists():
            raise ValueError(f"there is no client with Python {version}")
        return programs


def interpreter(version: str) -> str:
    """The path of an interpreter. Raises NotHere without one."""
    if (python := first_answer.interpreter(version)) is None:
        raise NotHere(f"no Python {version}")
    return python


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


def contents_of_folder(folder: Path) -> dict[str, str]:
    """The mode and the digest of each file of a bento, without the lines that say when it was built."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    found = {name: f"{file.stat().st_mode:o} {digest(file)}" for name, file in files.items()}
    lines = (folder / "bento.yaml").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("creation_time:", "version:"))]
    return found | {"bento.yaml": hashlib.sha256("\n".join(kept).encode()).hexdigest()}
