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

from gliner_bento.cli import serving_properties
from gliner_bento.cli.parsers import CommandError, setting_dest
from gliner_bento.errors import install_hint
from gliner_bento.process.exits import write_line
from gliner_bento.process.port import check_access, check_port
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.gliner_serve import ALIASES, CHECKED, without_effect
from gliner_bento.settings.names import DISABLE_COMPILE, env_name

EXAMPLES = """examples:
  gliner-bento serve
  gliner-bento serve --model urchade/gliner_small-v2.1 --port 3000 --dtype float32
  gliner-bento serve --config server.yaml --host 0.0.0.0 --api-keys keys.yaml
  gliner-bento serve --backend ray --max-instances 4

exit codes: 1 an argument, a setting, the port or the model is wrong, and one line says which; others are BentoML's"""

_CHECKED_PREFIX = "checked."
_UNTRACKED = {"BENTOML_DO_NOT_TRACK": "True"}
"""BentoML reports its use, unless this variable forbids it."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags and, hidden, gliner.serve's flags without a setting (docs/migrate/gliner-serve.md)."""
    parser.usage = "gliner-bento serve [--model MODEL] [--port PORT] [FLAG ...]"
    parser.description = (
        "Serve a model over HTTP. Every setting is a flag; a setting X that is true or false also has --no-X. "
        "gliner.serve's flags are accepted (docs/migrate/gliner-serve.md)."
    )
    parser.add_argument("--port", type=int, default=3000, help="port to listen on (default: 3000)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to bind; 0.0.0.0 for all interfaces (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--backend", choices=["bentoml", "ray"], default="bentoml", help="what runs the processes (default: bentoml)"
    )
    parser.add_argument("--ray-address", help="address of a Ray cluster, as RAY_ADDRESS; with --backend ray")
    parser.add_argument(
        "--serving-properties",
        type=Path,
        metavar="FILE",
        help="DJL Serving's serving.properties; flags and environment variables override it",
    )
    parser.add_argument(
        "--no-compile",
        dest=setting_dest("enable_compilation"),
        default=argparse.SUPPRESS,
        action="store_const",
        const="false",
        help=argparse.SUPPRESS,
    )
    for option in CHECKED:
        if flag := option.flag_name:
            parsing: dict[str, Any] = (
                {"type": option.parse} if option.parse else {"action": argparse.BooleanOptionalAction}
            )
            dest = f"{_CHECKED_PREFIX}{option.field}"
            parser.add_argument(flag, dest=dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **parsing)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Check the settings and the address, then serve."""
    warnings: list[str] = []
    if options.serving_properties:
        properties = serving_properties.read(options.serving_properties, flags)
        flags, warnings = {**properties.settings, **flags}, properties.warnings
    settings = Settings.load(flags)
    check_port(options.host, options.port)
    check_access(options.host, settings)
    warnings += without_effect(_checked_of(options))
    if options.ray_address:
        if options.backend != "ray":
            raise CommandError("--ray-address: needs --backend ray")
        os.environ["RAY_ADDRESS"] = options.ray_address
    for line in warnings:
        write_line(line)
    if options.backend == "ray":
        _check_installed("ray", "ray")
        program = f"from gliner_bento.ray.serve import main; main({options.host!r}, {options.port})"
        replace_process([sys.executable, "-c", program], settings, flags)
    else:
        _check_installed("bentoml", "serve")
        serve(settings, flags, port=options.port, host=options.host)
    return 0


def _check_installed(package: str, extra: str) -> None:
    if not find_spec(package):
        raise CommandError(f"serve: {package} is not installed; {install_hint(extra)}")


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
    os.execve(sys.executable, command, {**_UNTRACKED, **inherited, **worker_environment(settings, flags)})


def worker_environment(settings: Settings, flags: Mapping[str, Any]) -> dict[str, str]:
    """The environment that gives BentoML's workers the same settings: they read no argv and run in another folder."""
    given = settings.model_fields_set
    from_flags = {ALIASES.get(name, name) for name in flags}
    with_paths = {name for name in given if os.path.isabs(_plain(getattr(settings, name)))} | {"model"}
    with_paths |= given & {"models"}
    aliased = given & {*ALIASES.values(), "enable_compilation"}  # `replace_process` removes the aliases
    names = from_flags | with_paths | aliased
    return {env_name(name): _plain(getattr(settings, name)) for name in sorted(names)}


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else text_of(value)


def _checked_of(options: argparse.Namespace) -> dict[str, Any]:
    """The values of gliner.serve's flags without a setting, by the fields of `GLiNERServeConfig`."""
    given = vars(options).items()
    return {name.removeprefix(_CHECKED_PREFIX): value for name, value in given if name.startswith(_CHECKED_PREFIX)}
