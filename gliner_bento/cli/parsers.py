"""Parsers of commands: how each is made, and settings as flags."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from gliner_bento.configuration import SettingsError
from gliner_bento.settings import Settings
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.names import aliases_of, flag_name

_SETTING = "setting."


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage, which has more than a hundred flags."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def command(commands: Any, name: str, text: str, examples: str | None = None) -> argparse.ArgumentParser:
    """A command, or an action of one."""
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return made


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str] = tuple(Settings.model_fields)) -> None:
    """One flag per setting, one per alias, and `--no-X` for a setting X that is true or false."""
    for name in names:
        field = Settings.model_fields[name]
        text = f"{field.description} (default: {text_of(field.default)})".replace("%", "%%")
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        lines = {name: text} | {alias: f"gliner.serve's name for {flag_name(name)}" for alias in aliases_of(name)}
        for flag, line in lines.items():
            parser.add_argument(
                flag_name(flag), dest=setting_dest(flag), default=argparse.SUPPRESS, metavar="X", help=line, **bare
            )
        if field.annotation is bool:
            parser.add_argument(
                f"--no-{flag_name(name).removeprefix('--')}",
                dest=setting_dest(name),
                default=argparse.SUPPRESS,
                action="store_const",
                const="false",
                help=f"the same as {flag_name(name)} false",
            )


def add_json(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help=text)


def setting_dest(name: str) -> str:
    """Where argparse puts the value of a setting."""
    return f"{_SETTING}{name}"


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags."""
    return {name.removeprefix(_SETTING): value for name, value in vars(options).items() if name.startswith(_SETTING)}


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Its commands, or actions, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Its flags, and those of its actions."""
    for action in parser._actions:
        yield from action.option_strings
    for one in commands_of(parser).values():
        yield from flags_of(one)
