"""Parses argv: the commands, their flags, and which flags are settings. The only reader of argv."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from gliner_bento import __version__
from gliner_bento.cli import (
    adapters,
    backend,
    bench,
    bulk,
    completion,
    doctor,
    eval,
    extract,
    graph,
    keys,
    models,
    redact,
    restore,
    serve,
    settings,
    tune,
)
from gliner_bento.cli.parsers import HelpFormatter, Parser, add_settings, command, commands_of, flags_of, settings_of
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import refuse_unknown

EXAMPLES = """examples:
  gliner-bento serve --port 3000
  gliner-bento extract "Ada Lovelace lived in London." --labels person,city
  gliner-bento bulk letters/ -o letters.parquet --labels person,organization,city
  gliner-bento COMMAND --help

exit codes: 0 done; 1 an argument, an input, a setting, the model or a server is wrong, and one line says which;
130 interrupted; others are in the help of their commands"""

_ALL = tuple(Settings.model_fields)
_COMMANDS: Sequence[tuple[str, Any, Sequence[str], str]] = (
    ("serve", serve, _ALL, "serve a model over HTTP; every setting is a flag"),
    ("settings", settings, _ALL, "print the effective settings and the origin of each value"),
    ("extract", extract, backend.SETTINGS, "extract entities and relations from a text"),
    ("bulk", bulk, backend.SETTINGS, "extract from all records of many files"),
    ("redact", redact, (*backend.SETTINGS, *redact.PATTERN_SETTINGS), "replace entities in files, and restore them"),
    ("restore", restore, (), "put the originals back that a server has sealed"),
    ("graph", graph, backend.SETTINGS, "merge entities and relations of many documents"),
    ("eval", eval, eval.SETTINGS, "measure models on examples with known entities, relations and classes"),
    ("tune", tune, backend.SETTINGS, "find the thresholds of a model's labels on such examples"),
    ("bench", bench, (), "measure a running server"),
    ("models", models, (), "list checkpoints, show or fetch one; change the models of a server"),
    ("keys", keys, (), "make API keys"),
    ("adapters", adapters, (), "manage the LoRA adapters of a server"),
    ("doctor", doctor, backend.SETTINGS, "show what this machine can do, and test the model"),
    ("completion", completion, (), "print a script that completes commands and flags in a shell"),
)
"""Name, module, settings that are flags, and purpose of each command."""


def parse(argv: Sequence[str] | None) -> tuple[str, argparse.Namespace, dict[str, Any]]:
    """The command, its own options, and the settings that were given as flags.

    Raises `SettingsError` for a missing command, an unknown flag, and a wrong value of an option.
    """
    all_commands = parser()
    options, unknown = all_commands.parse_known_args(argv)
    options.parser = all_commands  # for `completion`
    known = list(flags_of(commands_of(all_commands)[options.command]))
    refuse_unknown((word.partition("=")[0] for word in unknown), known, f"{options.command}: unknown flag")
    return options.command, options, settings_of(options)


def arguments() -> list[str]:
    """This process's arguments."""
    return sys.argv[1:]


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    all_commands = Parser(
        prog="gliner-bento",
        description="Serve GLiNER models.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    all_commands.add_argument("--version", action="version", version=__version__)
    commands = all_commands.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module, setting_names, purpose in _COMMANDS:
        command_parser = command(commands, name, purpose, module.EXAMPLES)
        module.add_flags(command_parser)
        add_settings(command_parser, setting_names, shown=module is serve)
    return all_commands


def run(argv: Sequence[str] | None) -> int:
    """Run the command that `argv` names, and return its exit code. Raises `SettingsError`."""
    name, options, flags = parse(argv)
    (module,) = (module for command_name, module, *_ in _COMMANDS if command_name == name)
    code: int = module.run(options, flags)
    return code
