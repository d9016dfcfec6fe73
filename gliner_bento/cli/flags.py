"""Parses argv: the commands, their flags, and which flags are settings. The only reader of argv."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gliner_bento import __version__
from gliner_bento.api_keys import ALL_SCOPES
from gliner_bento.cli import adapters, backend, bulk, doctor, extract, graph, redact
from gliner_bento.configuration import SettingsError, refuse_unknown
from gliner_bento.serve.names import CHECKED
from gliner_bento.settings import Settings
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.names import ALIASES, aliases_of, flag_name

_CHECKED = "checked."
FETCH_SETTINGS = ("revision", "token", "cache_dir")
_SERVE_FLAGS = ["--port", "--host", "--backend", "--ray-address", "--no-compile"]
_BULK_FLAGS = [
    *("--output", "--text-column", "--labels-column", "--adapter-column", "--overwrite", "--json", "--quiet"),
]
_BENCH_FLAGS = ["--workload", "--concurrency", "--rate", "--seconds", "--out", "--api-key"]


def parse(argv: Sequence[str] | None) -> tuple[str, argparse.Namespace, dict[str, Any]]:
    """The command, its own options, and the settings that were given as flags.

    Raises `SettingsError` for a missing command, an unknown flag, and a wrong value of an option.
    """
    options, unknown = _parser().parse_known_args(argv)
    command = options.command
    refuse_unknown((word.partition("=")[0] for word in unknown), _flags_of(command), f"{command}: unknown flag")
    return command, options, _settings_of(options)


def arguments() -> list[str]:
    """This process's arguments."""
    return sys.argv[1:]


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage, which has more than a hundred flags."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gliner-bento", description="Serve GLiNER models.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_serve(commands)
    _add_settings(_command(commands, "settings", "print the effective settings and the origin of each value"))
    _add_extract(commands)
    _add_bulk(commands)
    _add_redact(commands)
    _add_graph(commands)
    _add_bench(commands)
    _add_models(commands)
    _add_keys(commands)
    _add_adapters(commands)
    _add_doctor(commands)
    docs = _command(commands, "docs", "generate docs/settings.md, docs/metrics.md and files of the Helm chart")
    docs.add_argument("--check", action="store_true", help="write nothing; exit with 1 if one is stale")
    return parser


def _add_serve(commands: Any) -> None:
    parser = _command(commands, "serve", "serve a model over HTTP; every setting is a flag")
    parser.add_argument("--port", type=int, default=3000, help="port to listen on (default: 3000)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to bind; 0.0.0.0 for all interfaces (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--backend", choices=["bentoml", "ray"], default="bentoml", help="what runs the processes (default: bentoml)"
    )
    _add_settings(parser)
    _add_gliner_serves(parser)


def _add_gliner_serves(parser: argparse.ArgumentParser) -> None:
    """gliner.serve's flags that are no setting (docs/migrate/gliner-serve.md)."""
    parser.add_argument("--ray-address", help="address of a Ray cluster, as RAY_ADDRESS; with --backend ray")
    parser.add_argument(
        "--no-compile",
        dest=_dest("enable_compilation"),
        default=argparse.SUPPRESS,
        action="store_const",
        const="false",
        help="gliner.serve's name for --no-enable-compilation",
    )
    for option in CHECKED:
        if flag := option.flag_name:
            kind: dict[str, Any] = (
                {"type": option.parse} if option.parse else {"action": argparse.BooleanOptionalAction}
            )
            dest = f"{_CHECKED}{option.field}"
            parser.add_argument(flag, dest=dest, default=argparse.SUPPRESS, help="gliner.serve's; no effect", **kind)


def _add_settings(parser: argparse.ArgumentParser, settings: Sequence[str] = tuple(Settings.model_fields)) -> None:
    """One flag per setting, one per alias, and `--no-X` for a setting X that is true or false."""
    for name in settings:
        field = Settings.model_fields[name]
        text = f"{field.description} (default: {text_of(field.default)})".replace("%", "%%")
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        lines = {name: text} | {alias: f"gliner.serve's name for {flag_name(name)}" for alias in aliases_of(name)}
        for flag, line in lines.items():
            parser.add_argument(
                flag_name(flag), dest=_dest(flag), default=argparse.SUPPRESS, metavar="X", help=line, **bare
            )
        if field.annotation is bool:
            parser.add_argument(
                _negative(name),
                dest=_dest(name),
                default=argparse.SUPPRESS,
                action="store_const",
                const="false",
                help=f"the same as {flag_name(name)} false",
            )


def _add_extract(commands: Any) -> None:
    parser = _command(commands, "extract", "extract entities and relations from a text", extract.EXAMPLES)
    extract.add_flags(parser)
    _add_settings(parser, backend.SETTINGS)


def _add_bulk(commands: Any) -> None:
    parser = _command(commands, "bulk", "extract from all records of many files", bulk.EXAMPLES)
    bulk.add_flags(parser)
    _add_settings(parser, backend.SETTINGS)


def _add_redact(commands: Any) -> None:
    parser = _command(commands, "redact", "replace entities in files, and restore them", redact.EXAMPLES)
    redact.add_flags(parser)
    backend.add_flags(parser, several=False)
    _add_settings(parser, backend.SETTINGS)


def _add_graph(commands: Any) -> None:
    parser = _command(commands, "graph", "merge entities and relations of many documents", graph.EXAMPLES)
    graph.add_flags(parser)
    backend.add_flags(parser, several=False)
    _add_settings(parser, backend.SETTINGS)


def _add_bench(commands: Any) -> None:
    parser = _command(commands, "bench", "measure a running server")
    parser.add_argument("url", help="of a running gliner-bento server")
    parser.add_argument("--workload", default="mixed", help="texts and labels to send (default: mixed)")
    parser.add_argument("--concurrency", default="1,8,32", help="numbers of concurrent requests (default: 1,8,32)")
    parser.add_argument("--rate", type=float, help="open loop: requests/s, sent on schedule")
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of each load (default: 15)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: build/bench/<time>)")
    parser.add_argument("--api-key", help="of the server (default: the environment's GLINER_CLIENT_API_KEY)")


def _add_models(commands: Any) -> None:
    parser = _command(commands, "models", "work with checkpoints")
    actions = parser.add_subparsers(dest="action", required=True)
    fetch = _command(actions, "fetch", "write a model to a folder that can be served without the hub")
    fetch.add_argument("model", help="hub id or local folder")
    fetch.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="new or empty folder")
    _add_settings(fetch, FETCH_SETTINGS)


def _add_keys(commands: Any) -> None:
    parser = _command(commands, "keys", "make API keys")
    actions = parser.add_subparsers(dest="action", required=True)
    new = _command(actions, "new", "make a key: its entry for the file of keys, and the key itself")
    new.add_argument("name", help="of the key, and of its tenant")
    new.add_argument("--scopes", default="extract", help=f"of {','.join(sorted(ALL_SCOPES))} (default: extract)")
    new.add_argument("--tenant", help="several keys may have one tenant (default: the name)")


def _add_adapters(commands: Any) -> None:
    parser = _command(commands, "adapters", "manage the LoRA adapters of a server", adapters.EXAMPLES)
    adapters.add_flags(parser.add_subparsers(dest="action", required=True), _command)


def _add_doctor(commands: Any) -> None:
    parser = _command(commands, "doctor", "show what this machine can do, and test the model", doctor.EXAMPLES)
    doctor.add_flags(parser)
    _add_settings(parser, backend.SETTINGS)


def _command(commands: Any, name: str, text: str, examples: str | None = None) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter if examples else argparse.HelpFormatter,
        allow_abbrev=False,
    )
    return parser


def _flags_of(command: str) -> list[str]:
    own = {
        "serve": _SERVE_FLAGS + [option.flag_name for option in CHECKED if option.flag_name],
        "docs": ["--check"],
        "bench": _BENCH_FLAGS,
        "keys": ["--scopes", "--tenant"],
        "bulk": [*backend.FLAGS, *_BULK_FLAGS, *map(flag_name, backend.SETTINGS)],
        "extract": [*backend.FLAGS, "--table", "--json", *map(flag_name, backend.SETTINGS)],
        "redact": [*redact.FLAGS, *backend.FLAGS, *map(flag_name, backend.SETTINGS)],
        "graph": [*graph.FLAGS, *backend.FLAGS, *map(flag_name, backend.SETTINGS)],
        "adapters": adapters.FLAGS,
        "doctor": [*doctor.FLAGS, *map(flag_name, backend.SETTINGS)],
        "models": ["--output", *map(flag_name, FETCH_SETTINGS)],
    }.get(command, [])
    if command not in ("serve", "settings"):
        return own
    negatives = [_negative(name) for name, field in Settings.model_fields.items() if field.annotation is bool]
    return [*own, *map(flag_name, [*Settings.model_fields, *ALIASES]), *negatives]


def _negative(name: str) -> str:
    return f"--no-{flag_name(name).removeprefix('--')}"


def _dest(name: str) -> str:
    return f"setting.{name}"


def _settings_of(known: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags."""
    return {key.removeprefix("setting."): value for key, value in vars(known).items() if key.startswith("setting.")}


def checked_of(options: argparse.Namespace) -> dict[str, Any]:
    """gliner.serve's options that are no setting, as they were given."""
    return {key.removeprefix(_CHECKED): value for key, value in vars(options).items() if key.startswith(_CHECKED)}
