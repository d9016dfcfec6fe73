"""What a release publishes: what sdists and wheels hold, and what a client needs.

That the wheels serve the bundled model in an empty folder is seen by tools/fresh_clone.py. What it has built is tested
where `BUILT_DIST` names its folder, as in CI; else the artefacts are built here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from email.message import Message
from importlib.metadata import PathDistribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gliner_bento import __version__
from gliner_bento.settings import PROJECT_ROOT
from tools import docs_site, first_answer

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "docs", "tests")
SITE = "gliner_bento/gateway/pages/docs"
MODEL = ("README.md", "gliner_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
CLIENT = """
from gliner_bento.client import Client
with Client("{url}") as client:
    answer = client.extract("Bill Gates founded Microsoft.", ["person", "organization"])
    many = client.extract_many(["Tim Cook lives in Cupertino."], ["person"])
    print([entity.text for entity in answer.entities], [entity.text for one in many for entity in one.result.entities])
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The folder that `make dist` writes."""
    if built := os.environ.get("BUILT_DIST"):
        return Path(built)
    project = shutil.copytree(PROJECT_ROOT, tmp_path_factory.mktemp("build") / "project", ignore=NOT_COPIED)
    (project / SITE).mkdir()
    (project / SITE / "index.html").write_text("<h1>The site</h1>")
    ended = subprocess.run(
        ["tools/distributions", sys.executable], cwd=project, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return project / "dist"


@pytest.fixture(scope="module")
def site(dist) -> set[str]:
    """The files of the site in the folder that the artefacts were built in."""
    return {file.relative_to(dist.parent).as_posix() for file in (dist.parent / SITE).rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    [wheel] = dist.glob("gliner_bento-*.whl")
    return wheel


@pytest.fixture(scope="module")
def demo_wheel(dist) -> Path:
    [wheel] = dist.glob("gliner_bento_demo-*.whl")
    return wheel


class CleanEnvironment:
    """An environment with a wheel and the named packages, copied from this one, and nothing else."""

    def __init__(self, folder: Path, wheel: Path, requirements: Iterable[str]) -> None:
        venv.create(folder, with_pip=False)
        self.bin = folder / "bin"
        [self.site] = folder.glob("lib/python3*/site-packages")
        for name in with_dependencies(requirements):
            package = distribution(name)
            for file in package.files or ():
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    target = self.site / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(package.locate_file(file), target)  # type: ignore[arg-type]
        python = str(self.bin / "python")
        pip("--python", python, "install", "--no-deps", "--no-index", "--no-compile", str(wheel), cwd=folder)

    def run(self, *command: str, cwd: Path, code: int = 0) -> tuple[str, str]:
        """Standard output and error of a program of the environment."""
        program = [str(self.bin / command[0]), *command[1:]]
        ended = subprocess.run(
            program, cwd=cwd, env=own_environment(), capture_output=True, text=True, check=False, timeout=120
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout, ended.stderr


def own_environment() -> dict[str, str]:
    """Without the tests' settings, and without PYTHONPATH, where pip would find the package of a checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("GLINER_", "PYTHONPATH"))}


def with_dependencies(requirements: Iterable[str]) -> set[str]:
    """Names of installed packages: those required, and what they require, without extras."""
    names, waiting = set[str](), [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop()
        if one.name not in names and (one.marker is None or one.marker.evaluate({"extra": ""})):
            names.add(one.name)
            waiting += map(Requirement, distribution(one.name).requires or ())
    return names


def declared(wheel: Path, folder: Path) -> list[str]:
    """The requirements in a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    [information] = folder.glob("*.dist-info")
    return PathDistribution(information).requires or []


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def pip(*arguments: str, cwd: Path) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    ended = subprocess.run(command, cwd=cwd, env=own_environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_wheel_holds_only_what_serves_and_the_site(wheel, site):
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name) for name in archive.namelist()}
    [information] = {file.parts[0] for file in files if file.parts[0].endswith(".dist-info")}
    assert {file.parts[0] for file in files} == {information, "gliner_bento", "runners", "service.py"}
    packaged = {file.as_posix() for file in files if file.parts[0] != information}
    folders = (PROJECT_ROOT / "gliner_bento", PROJECT_ROOT / "runners")
    sources = {path.relative_to(PROJECT_ROOT).as_posix() for folder in folders for path in folder.rglob("*.py")}
    files = folders[0].rglob("gateway/pages/**/*")
    pages = {page.relative_to(PROJECT_ROOT).as_posix() for page in files if page.is_file()}
    pages = {page for page in pages if not page.startswith(SITE + "/")} | site
    assert f"{SITE}/index.html" in site
    assert packaged == {"service.py", "gliner_bento/py.typed", "gliner_bento/cli/known_models.yaml", *sources, *pages}


def test_the_models_wheel_is_data_with_the_licences_of_its_sources(demo_wheel):
    with zipfile.ZipFile(demo_wheel) as archive:
        names = archive.namelist()
        [information] = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        notice = archive.read(f"{information}/licenses/NOTICE").decode()
    packaged = {name for name in names if not name.startswith(information)}
    assert packaged == {"gliner_bento_demo/__init__.py", *(f"gliner_bento_demo/demo/{name}" for name in MODEL)}
    assert all(source in notice for source in ("CC BY 4.0", "CC BY 3.0", "MultiCoNER", "SLURP", "SEC filings"))


def test_an_sdist_holds_what_its_wheel_is_built_of_and_nothing_else(dist, wheel):
    [sdist] = dist.glob("gliner_bento-*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    packaged = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    texts = {"LICENSE", "MANIFEST.in", "NOTICE", "PKG-INFO", "README.md"}
    project = {"pyproject.toml", "setup.cfg", "setup.py"}
    assert {name for name in files if ".egg-info/" not in name} == packaged | texts | project


def test_the_metadata_is_complete_and_its_links_leave_the_index(wheel, demo_wheel):
    about = metadata_of(wheel)
    for field in ("Author", "Summary", "License-Expression", "Requires-Python", "Keywords"):
        assert about[field], field
    urls = dict(url.split(", ") for url in about.get_all("Project-URL"))
    assert urls.keys() == {"Documentation", "Repository", "Changelog", "Issues"}
    pythons = re.findall(r"Python :: (3\.\d+)$", "\n".join(about.get_all("Classifier")), re.MULTILINE)
    assert tuple(pythons) == first_answer.VERSIONS
    links = [link[0] for link in docs_site.links(about.get_payload())]
    assert len(links) > 20
    assert {
        link for link in links if not link.startswith("https://") and not link.startswith("http://localhost")
    } == set()
    assert f"{urls['Repository']}/raw/v{__version__}/docs/playground.webp" in links
    assert f"{urls['Repository']}/blob/v{__version__}/docs/quickstart.md" in links
    demo = metadata_of(demo_wheel)
    [needed] = [one for one in about.get_all("Requires-Dist") if one.startswith("gliner-bento-demo")]
    assert 'extra == "serve"' in needed
    assert Requirement(needed).specifier.contains(demo["Version"])


def test_the_client_needs_httpx_and_pydantic_alone(wheel, server, tmp_path):
    environment = CleanEnvironment(tmp_path / "environment", wheel, ["httpx", "pydantic"])
    printed, _ = environment.run("python", "-c", CLIENT.format(url=server), cwd=tmp_path)
    assert printed == "['Bill Gates', 'Microsoft'] ['Tim Cook']\n"


def test_commands_ask_a_server_with_the_packages_that_the_wheel_declares_and_others_name_the_extra(
    wheel, server, tmp_path
):
    requirements = [one for one in declared(wheel, tmp_path / "unpacked") if "extra ==" not in one]
    environment = CleanEnvironment(tmp_path / "environment", wheel, requirements)
    installed = {one.name.lower() for one in distributions(path=[str(environment.site)])}
    assert "httpx" in installed
    assert not installed & {"aiohttp", "bentoml", "click", "prometheus-client", "starlette", "torch", "transformers"}
    work = tmp_path / "work"
    work.mkdir()
    (work / "letter.txt").write_text("Ada Lovelace lived in London.")

    def command(line: str, code: int = 0) -> tuple[str, str]:
        return environment.run("gliner-bento", *line.replace("URL", server).split(), cwd=work, code=code)

    assert command("extract letter.txt --labels person,city --url URL")[0] == (
        "Ada Lovelace [person] lived in London [city].\n"
    )
    command("bulk letter.txt -o out.jsonl --labels person,city --url URL --quiet")
    assert [one["text"] for one in json.loads((work / "out.jsonl").read_text())["entities"]] == [
        *("Ada Lovelace", "London")
    ]
    command("redact letter.txt -o redacted --labels person,city --url URL")
    command("bench URL --concurrency 1 --seconds 0.2 --out bench")
    command("doctor --url URL")
    for line in ("--help", "bulk --help", "serve --help", "settings", "keys new a"):
        command(line)
    needs = "install the extra serve: pip install 'gliner-bento[serve]' (docs/quickstart.md)\n"
    for line in ("extract letter.txt --labels person", "bulk letter.txt -o no.jsonl --labels a", "doctor"):
        assert command(line, code=1)[1].endswith(f"; name a server with --url, or {needs}")
    for line in ("serve", "models list", "models show models/demo"):
        assert command(line, code=1)[1].endswith(f" is not installed; {needs}")
