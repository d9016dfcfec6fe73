"""`gliner-bento serve`: replaces the process with `bentoml serve`, or with the program that serves on Ray."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from gliner_bento.cli.flags import checked_of
from gliner_bento.configuration import PROJECT_ROOT, SettingsError
from gliner_bento.exits import write_line
from gliner_bento.process.port import check_access, check_port
from gliner_bento.serve.names import without_effect
from gliner_bento.settings import Settings
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.names import ALIASES, DISABLE_COMPILE, env_name


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Check the settings and the address, then serve."""
    settings = Settings.load(flags)
    check_port(options.host, options.port)
    check_access(options.host, settings)
    ignored = without_effect(checked_of(options))
    if options.ray_address:
        if options.backend != "ray":
            raise SettingsError("--ray-address: needs --backend ray")
        os.environ["RAY_ADDRESS"] = options.ray_address
    for line in ignored:
        write_line(line)
    if options.backend == "ray":
        if not find_spec("ray"):
            raise SettingsError("--backend ray: Ray is not installed; install gliner-bento[ray]")
        program = f"from gliner_bento.ray.serve import main; main({options.host!r}, {options.port})"
        replace_process([sys.executable, "-c", program], settings, flags)
    else:
        serve(settings, flags, port=options.port, host=options.host)
    return 0


def serve(settings: Settings, flags: Mapping[str, Any], *, port: int, host: str) -> None:
    """Replace this process with `bentoml serve`; does not return."""
    command = [sys.executable, "-m", "bentoml", "serve", "service:GLiNERService"]
    command += ["--working-dir", str(PROJECT_ROOT), "--port", str(port), "--host", host]
    replace_process(command, settings, flags)


def replace_process(command: list[str], settings: Settings, flags: Mapping[str, Any]) -> None:
    """Replace this process with `command`, which loads the same settings; does not return."""
    sys.stdout.flush()
    aliases = {*map(env_name, ALIASES), DISABLE_COMPILE}
    inherited = {name: value for name, value in os.environ.items() if name.upper() not in aliases}
    os.execve(sys.executable, command, {**inherited, **worker_environment(settings, flags)})


def worker_environment(settings: Settings, flags: Mapping[str, Any]) -> dict[str, str]:
    """The environment that gives BentoML's workers the same settings: they read no argv and run in another folder."""
    given = settings.model_fields_set
    paths = {name for name in given if isinstance(getattr(settings, name), Path)}
    aliased = given & {*ALIASES.values(), "enable_compilation"}
    names = {ALIASES.get(name, name) for name in flags} | paths | aliased | (given & {"api_keys"}) | {"model"}
    return {env_name(name): _plain(getattr(settings, name)) for name in sorted(names)}


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else text_of(value)
