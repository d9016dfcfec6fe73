"""`make release-check`: all of a release that can be tried without an account. Writes nothing but build and dist, and
images into podman's store.

The artefacts are built from a clone of HEAD, checked, installed from a package index on loopback, and used. The last
row compares them with what was tested.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import changelog, places, tried, workflows
from .places import ROOT
from .table import ForAPerson, Step, output_of, run
from .tools import actionlint, program

_TREE_MB = 64


def check(*, quick: bool) -> int:
    """Print the table. Returns 1 if a row failed. quick: without an installation, a build or a placeholder's row."""
    steps: dict[str, Step] = {"versions and names agree": agree, "changelog": changed, "workflows": pinned}
    if quick:
        return run(steps)
    with tempfile.TemporaryDirectory(prefix="release-check-") as folder, tried.Trial(Path(folder)) as trial:
        full: dict[str, Step] = {
            "release.toml": decided,
            **steps,
            "size of the tree": small,
            "actionlint": lint_workflows,
            "zizmor": audit_workflows,
            "clean clone": trial.clone,
            "build": trial.build,
            "the same artefacts again": trial.build_again,
            "twine, check-wheel-contents": trial.inspect,
            "package index": trial.index,
            "server, docs, bundled model": trial.server,
            "README in a clean root, Python 3.11": trial.readme,
            "settings and keys: from 0.1.0 and back": trial.upgrade,
            **{f"client, Python {version}": trial.client(version) for version in tried.VERSIONS},
            "client and server, Python 3.14": trial.newest_python,
            "extras": trial.extras,
            "pip install from the clone": trial.from_git,
            "chart": trial.chart,
            "chart from a registry": trial.pulled,
            "bill of materials": trial.bill,
            "known vulnerabilities": trial.audit,
            "docs by version": trial.docs,
            "context of the image, twice": trial.context,
            "image": trial.image,
            "artefacts are those that were tested": trial.unchanged,
        }
        return run(full)


def decided() -> str:
    """Raises ForAPerson if release.toml has a placeholder."""
    if missing := places.placeholders():
        raise ForAPerson(f"stops the release until decided in release.toml: {', '.join(missing)}")
    return ", ".join(places.names().values())


def agree() -> str:
    """Raises ValueError if a file shows another value."""
    if stale := list(places.stale()):
        raise ValueError(f"{len(stale)}, first {stale[0]}: run `make version`")
    return f"{places.version()}, model {places.model_version()}, in {len(places.PLACES)} places"


def changed() -> str:
    """Raises ValueError if the changelog does not describe this version, or has no page of notes about it."""
    version = places.version()
    bullets = sum(line.startswith("- ") for line in changelog.notes(version).splitlines())
    return f"section {version} with {bullets} entries, date {changelog.date_of(version) or 'not set yet'}"


def pinned() -> str:
    """Raises ValueError if a workflow breaks a rule."""
    if problems := list(workflows.problems()):
        raise ValueError(f"{len(problems)}, first {problems[0]}")
    return f"{len(workflows.files())}: actions pinned by commit, targets exist, no permissions but those of jobs"


def lint_workflows() -> str:
    """Raises ValueError with what actionlint reports."""
    output_of(actionlint(), *(path.relative_to(ROOT) for path in workflows.files()), cwd=ROOT)
    return "no reports"


def audit_workflows() -> str:
    """Raises ValueError with what zizmor reports."""
    output_of(program("zizmor"), "--offline", "--no-progress", ".github", cwd=ROOT)
    return "no reports (offline audits)"


def small() -> str:
    """Raises ValueError if the files of HEAD are larger than a clone may be."""
    listed = output_of("git", "ls-tree", "-r", "-l", "HEAD", cwd=ROOT).splitlines()
    size = sum(int(line.split()[3]) for line in listed) / 2**20
    if size > _TREE_MB:
        raise ValueError(f"{size:.1f} MiB in {len(listed)} files; at most {_TREE_MB}")
    return f"{size:.1f} MiB in {len(listed)} files"
