"""The values that more than one file shows: versions, and the names of release.toml.

A file says its own way what release.toml or `__version__` decide, because the tool that reads it reads nothing else.
`PLACES` lists all of them: `write` puts the values there, `stale` names the places that differ.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACEHOLDER = ".example"
_PACKAGE = "gliner_bento/__init__.py"
_MODEL = "models/gliner_bento_demo/__init__.py"
_CHART = "deploy/helm/gliner-bento"
_BY_DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")
_VALUE = re.compile(r'^(\w+) = ("[^"]*")', re.MULTILINE)
_VERSION = re.compile(r'^__version__ = "(.+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """pattern: its one group is the text that shows the value, wherever it matches. value: a format of `values()`."""

    file: str
    pattern: str
    value: str

    def texts(self, root: Path) -> list[str]:
        """What the file shows now. Raises ValueError if it shows nothing."""
        found = re.findall(self.pattern, (root / self.file).read_text(encoding="utf-8"), re.MULTILINE)
        if not found:
            raise ValueError(f"{self.file}: nothing matches {self.pattern}")
        return found


IMAGE = r"\b((?:[a-z0-9][\w.-]*/)+gliner-bento:\d[\w.]*)"
PLACES = (
    Place("pyproject.toml", r'^authors = \[\{ name = "(.+)" \}\]', "{owner}"),
    Place("pyproject.toml", r'^Documentation = "(.+)"', "{docs}/latest/"),
    Place("pyproject.toml", r'^Repository = "(.+)"', "{repository}"),
    Place("pyproject.toml", r'^Changelog = "(.+)"', "{docs}/latest/changelog.html"),
    Place("pyproject.toml", r'^Issues = "(.+)"', "{repository}/issues"),
    Place("models/pyproject.toml", r'^authors = \[\{ name = "(.+)" \}\]', "{owner}"),
    Place("models/pyproject.toml", r'^Documentation = "(.+)"', "{docs}/latest/models.html"),
    Place("models/pyproject.toml", r'^Repository = "(.+)"', "{repository}"),
    Place(f"{_CHART}/Chart.yaml", r"^version: (.+)$", "{version}"),
    Place(f"{_CHART}/Chart.yaml", r'^appVersion: "(.+)"$', "{version}"),
    Place(f"{_CHART}/Chart.yaml", r"^home: (.+)$", "{docs}/latest/deployment.html"),
    Place(f"{_CHART}/Chart.yaml", r"^      url: (.+/deployment.html)$", "{docs}/latest/deployment.html"),
    Place(f"{_CHART}/Chart.yaml", r"^      url: (.+/issues)$", "{repository}/issues"),
    Place(f"{_CHART}/Chart.yaml", r"^sources: \[(.+)\]$", "{repository}"),
    Place(f"{_CHART}/Chart.yaml", r"^maintainers: \[\{name: (.+)\}\]$", "{owner}"),
    Place(f"{_CHART}/Chart.yaml", r"^      image: (.+)$", "{registry}/gliner-bento:{version}"),
    Place(f"{_CHART}/values.yaml", r"^  repository: (\S+)", "{registry}/gliner-bento"),
    Place(f"{_CHART}/values-gpu.yaml", r"^  tag: (.+)-cuda$", "{version}"),
    Place(f"{_CHART}/README.md", r"\]\((\S+/deployment\.html)", "{docs}/{version}/deployment.html"),
    Place(f"{_CHART}/README.md", r"oci://(\S+)/charts/gliner-bento", "{registry}"),
    Place(f"{_CHART}/README.md", r"^helm install .+ --version (\S+)", "{version}"),
    Place("deploy/docker/Dockerfile", r"^ARG BASE=(.+)$", "{base}"),
    Place("deploy/kserve/inference-service.yaml", IMAGE, "{registry}/gliner-bento:{version}"),
    Place("deploy/compose/docker-compose.yml", IMAGE, "{registry}/gliner-bento:{version}"),
    Place("deploy/systemd/gliner-bento.service", r"^Documentation=(.+)$", "{docs}/{version}/deployment.html"),
    Place("README.md", r"\((https?://[^()]+)/actions/workflows/ci\.yml", "{repository}"),
    Place("README.md", IMAGE, "{registry}/gliner-bento:{version}"),
    Place("CITATION.cff", r"^version: (.+)$", "{version}"),
    Place("CITATION.cff", r'^  - name: "(.+)"$', "{owner}"),
    Place("CITATION.cff", r'^repository-code: "(.+)"$', "{repository}"),
    Place("CITATION.cff", r'^url: "(.+)"$', "{docs}/latest/"),
    Place("SECURITY.md", r"<(\S+@\S+)>", "{contact}"),
    Place("SECURITY.md", r"^\| ([\d.]+) \| yes \|$", "{minor}"),
    Place("CODE_OF_CONDUCT.md", r"<(\S+@\S+)>", "{contact}"),
    Place("SUPPORT.md", r"<(https?://\S+)/issues>", "{repository}"),
    Place(".github/ISSUE_TEMPLATE/config.yml", r"^    url: (\S+)/SECURITY.md$", "{repository}/blob/main"),
)


def names(root: Path = ROOT) -> dict[str, str]:
    """The names that a person decides."""
    text = (root / "release.toml").read_text(encoding="utf-8")
    return {name: ast.literal_eval(value) for name, value in _VALUE.findall(text)}


def version(root: Path = ROOT, file: str = _PACKAGE) -> str:
    """The version in a package's `__init__.py`."""
    match = _VERSION.search((root / file).read_text(encoding="utf-8"))
    assert match, file
    return match[1]


def model_version(root: Path = ROOT) -> str:
    """The version of the distribution with the bundled model."""
    return version(root, _MODEL)


def placeholders(root: Path = ROOT) -> list[str]:
    """The names that nobody has decided yet; the base of images, if it is not named by its digest."""
    known = names(root)
    open_names = [name for name, value in known.items() if PLACEHOLDER in value or not value]
    return [*open_names, *([] if _BY_DIGEST.fullmatch(known["base"]) else ["base (by its digest)"])]


def values(root: Path = ROOT) -> Mapping[str, str]:
    """What a place may show."""
    current = version(root)
    return {**names(root), "version": current, "minor": current.rpartition(".")[0]}


def stale(root: Path = ROOT) -> Iterator[str]:
    """A line for each place that shows another value."""
    known = values(root)
    for place in PLACES:
        wanted = place.value.format(**known)
        for text in place.texts(root):
            if text != wanted:
                yield f"{place.file}: {text} should be {wanted}"


def write(root: Path = ROOT) -> list[str]:
    """Write the values to all places. Returns the files that changed."""
    known, changed = values(root), []
    for place in PLACES:
        place.texts(root)
        file, wanted = root / place.file, place.value.format(**known)
        before = file.read_text(encoding="utf-8")
        after = re.sub(place.pattern, partial(_with, text=wanted), before, flags=re.MULTILINE)
        if after != before:
            file.write_text(after, encoding="utf-8")
            changed.append(place.file)
    return sorted(set(changed))


def set_version(new: str, root: Path = ROOT) -> None:
    """Set the package's version; `write` brings it to the other places."""
    file = root / _PACKAGE
    text = file.read_text(encoding="utf-8")
    file.write_text(_VERSION.sub(f'__version__ = "{new}"', text, count=1), encoding="utf-8")


def _with(match: re.Match[str], text: str) -> str:
    """The match with another text in the place of its group."""
    start, end = match.start(1) - match.start(), match.end(1) - match.start()
    return f"{match[0][:start]}{text}{match[0][end:]}"
