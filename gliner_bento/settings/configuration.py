"""Reads configuration.yaml and checks the names in its two sections, but not the settings' values."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PACKAGE = Path(__file__).resolve().parents[1]
"""The package's folder."""

PROJECT_ROOT = PACKAGE.parent
"""The folder of service.py: a checkout, `src` of a built bento, or where a wheel is installed."""

CONFIGURATION_FILE = PROJECT_ROOT / "configuration.yaml"

SERVICES = ("GLiNERService", "GLiNERRunner")
BENTOML_KEYS = frozenset(
    {
        "backlog",
        "endpoints",
        "extra_ports",
        "grpc",
        "http",
        "logging",
        "metrics",
        "monitoring",
        "replicate_process",
        "resources",
        "runner_probe",
        "ssl",
        "threads",
        "tracing",
        "traffic",
        "workers",
    }
)
"""The keys that BentoML reads in a service's section. It ignores other keys; we refuse them."""


class SettingsError(ValueError):
    """A setting is unknown or invalid. The message is one line and names the setting, the value and its origin."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of the file: our settings, and BentoML's keys per service."""

    gliner: dict[str, Any]
    services: dict[str, dict[str, Any]]


def read_configuration(file: Path | None, settings: Iterable[str]) -> Configuration:
    """The content of `file`, by default of CONFIGURATION_FILE if that exists. Raises `SettingsError`.

    settings: the names that the section `gliner` may contain.
    """
    path = file or CONFIGURATION_FILE
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) if file or path.exists() else None
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: invalid YAML: {' '.join(str(error).split())}") from None
    sections = _mapping(content, str(path))
    refuse_unknown(sections, ("gliner", "services"), f"{path}: unknown section")
    gliner = _mapping(sections.get("gliner"), f"{path}: gliner")
    refuse_unknown(gliner, settings, f"{path}: unknown setting")
    services = _mapping(sections.get("services"), f"{path}: services")
    refuse_unknown(services, SERVICES, f"{path}: unknown service")
    keys = {name: _mapping(section, f"{path}: {name}") for name, section in services.items()}
    for name, section in keys.items():
        refuse_unknown(section, BENTOML_KEYS, f"{path}: {name}: unknown key")
    _refuse_unsupported(keys, path)
    return Configuration(gliner, keys)


def _refuse_unsupported(services: dict[str, dict[str, Any]], path: Path) -> None:
    """Raise `SettingsError` for values that BentoML accepts and that break our guarantees."""
    if services.get("GLiNERRunner", {}).get("workers", 1) != 1:
        raise SettingsError(f"{path}: GLiNERRunner: workers: must be 1, because an abort reaches only one worker")
    for name, section in services.items():
        if "max_concurrency" in _mapping(section.get("traffic"), f"{path}: {name}: traffic"):
            raise SettingsError(f"{path}: {name}: traffic.max_concurrency: use queue_capacity, which refuses with 429")
        if "metrics" in section:
            raise SettingsError(
                f"{path}: {name}: metrics: BentoML's have a series per path; use this server's /metrics"
            )


def refuse_unknown(
    given: Iterable[object], known: Iterable[str], problem: str, normalize: Callable[[str], str] = str
) -> None:
    """Raise `SettingsError` for the first name that is not `known`, with the closest known name.

    problem: the beginning of the message. normalize: applied to a given name before it is compared.
    """
    known = tuple(known)
    for name in map(str, given):
        if normalize(name) not in known:
            raise SettingsError(f"{problem} {name}{suggestion(normalize(name), known)}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about a setting that does not exist: the closest known name, or nothing."""
    bare = {one.lstrip("-"): one for one in known}  # dashes make any two flags alike
    nearest = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    return f"; did you mean {bare[nearest[0]]}?" if nearest else ""


def resolve_aliases(
    given: Mapping[str, Any], aliases: Mapping[str, str], spell: Callable[[str], str] = str
) -> dict[str, Any]:
    """`given`, with aliases replaced by the settings' own names. Raises `SettingsError`, with names as `spell` writes
    them, if two names of one setting have different values."""
    resolved: dict[str, Any] = {}
    given_names: dict[str, str] = {}
    for name, value in given.items():
        setting = aliases.get(name, name)
        if setting in resolved and str(resolved[setting]) != str(value):
            names = f"{spell(given_names[setting])} and {spell(name)}"
            raise SettingsError(f"{names} name one setting but have different values")
        resolved[setting], given_names[setting] = value, name
    return resolved


def _mapping(value: object, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"{where}: must be a mapping")
    return value
