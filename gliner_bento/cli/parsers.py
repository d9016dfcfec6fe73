"""Makes the parsers of commands, with settings as flags."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from gliner_bento.files.records.sources import READABLE
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError, refuse_unknown
from gliner_bento.settings.field_types import NAMED_MODEL, text_of
from gliner_bento.settings.names import aliases_of, flag_name

DEFAULT_URL = "http://localhost:3000"
_SETTING_PREFIX = "setting."


class CommandError(SettingsError):
    """An argument, an input or the server of a command cannot be used. The message is one line."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage, which has more than a hundred flags."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction):
            refuse_unknown([value], action.choices, f"unknown {action.dest}")
        super()._check_value(action, value)


class _ModelAction(argparse.Action):
    """`--model CHECKPOINT` sets `model`; `--model NAME=CHECKPOINT` appends to `models`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        models = setting_dest("models")
        if re.match(NAMED_MODEL, values):
            given = getattr(namespace, models, None)
            setattr(namespace, models, f"{given},{values}" if given else values)
        else:
            setattr(namespace, self.dest, values)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fits the help to the terminal: wraps paragraphs, and example commands with a backslash, as a shell allows."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = []
        for paragraph in text.split("\n\n"):
            if paragraph.startswith("examples:"):
                paragraphs.append("\n".join(_example(line, width) for line in paragraph.splitlines()))
            else:
                words = " ".join(paragraph.split())
                paragraphs.append(textwrap.fill(words, width, initial_indent=indent, subsequent_indent=indent))
        return "\n\n".join(paragraphs)


def _example(line: str, width: int) -> str:
    """A command line, continued after a backslash where it is too long, not inside quotes or before a flag's value."""
    wrapped = line[: len(line) - len(line.lstrip())]
    quoted = r"""(?:"[^"]*"|'[^']*'|\S)+"""
    for word in re.findall(rf"-\S* (?!-){quoted}|{quoted}", line):
        wrapped_line = wrapped.rpartition("\n")[2]
        if wrapped_line.strip() and len(wrapped_line) + len(word) > width - 3:
            wrapped += f"\\\n      {word} "
        else:
            wrapped += f"{word} "
    return wrapped.rstrip()


def command(commands: Any, name: str, help_text: str, examples: str | None = None) -> argparse.ArgumentParser:
    """Add a command, or an action of a command; returns its parser. examples: of the command and its exit codes; the
    help of an action shows those of the action."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text, formatter_class=HelpFormatter, allow_abbrev=False
    )
    lines = (examples or "").split("\n")
    others = re.compile(rf"  (?!.*{re.escape(parser.prog)}\b)")
    parser.epilog = "\n".join(line for line in lines if not others.match(line))
    return parser


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str], *, shown: bool = False) -> None:
    """Add a flag for each setting and each alias, and `--no-X` for a setting X that is true or false.

    shown: whether the help explains the settings, in groups; otherwise it lists their flags and refers to the help of
        `serve`. It never shows aliases.
    """
    if not shown and names:
        flags = ", ".join(map(flag_name, names)) if len(names) < len(Settings.model_fields) else "every setting"
        parser.add_argument_group("settings", f"{flags}: see `gliner-bento serve --help`")
    groups: dict[str, Any] = {}
    for name in names:
        field = Settings.model_fields[name]
        # The title of a group is the docstring of the base class that declares its settings. `Settings` itself declares
        # only `config`.
        docs = (str(base.__doc__) for base in Settings.__bases__ if name in getattr(base, "model_fields", ()))
        doc = next(docs, "Configuration file.")
        title = doc.partition("\n")[0].rstrip(".")
        if title not in groups:
            groups[title] = parser.add_argument_group(title) if shown else parser
        default = f" (default: {text_of(field.default)})" if field.default not in (None, (), {}) else ""
        _add_setting(groups[title], name, f"{field.description}{default}" if shown else None)


def _add_setting(parser: Any, name: str, help_text: str | None) -> None:
    """Add the flags of a setting. If `help_text` is None, the help does not show them."""
    is_bool = Settings.model_fields[name].annotation is bool
    help_text = argparse.SUPPRESS if help_text is None else help_text.replace("%", "%%")
    options: dict[str, Any] = {"nargs": "?", "const": "true"} if is_bool else {}
    if name == "model":
        options = {"action": _ModelAction}
    for name_or_alias in (name, *aliases_of(name)):
        flag_help = help_text if name_or_alias == name else argparse.SUPPRESS
        flag, dest = flag_name(name_or_alias), setting_dest(name_or_alias)
        parser.add_argument(flag, dest=dest, default=argparse.SUPPRESS, metavar="X", help=flag_help, **options)
    if is_bool:
        negative, dest = f"--no-{flag_name(name).removeprefix('--')}", setting_dest(name)
        parser.add_argument(
            negative, dest=dest, default=argparse.SUPPRESS, action="store_const", const="false", help=argparse.SUPPRESS
        )


def add_records(parser: argparse.ArgumentParser, note: str) -> None:
    """Add the input files, `--text-column` and the input options. note: added to the help of the files."""
    parser.add_argument("inputs", nargs="+", metavar="FILE|FOLDER", help=f"{READABLE}; {note}")
    parser.add_argument("--text-column", default="text", metavar="NAME", help="column with the text (default: text)")
    add_input_options(parser)


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add `--encoding` and `--skip-invalid`."""
    parser.add_argument(
        "--encoding",
        type=_encoding,
        default="utf-8",
        metavar="NAME",
        help="encoding without a byte order mark (default: utf-8)",
    )
    parser.add_argument("--skip-invalid", action="store_true", help="skip invalid lines of JSONL and CSV, not the file")


def _encoding(name: str) -> str:
    try:
        "".encode(name)
    except (LookupError, UnicodeError):  # UnicodeError: Python's codec `undefined`
        raise argparse.ArgumentTypeError(f"unknown encoding: {name}") from None
    return name


def add_server(
    parser: argparse.ArgumentParser,
    help_text: str,
    *,
    models: bool = True,
    several_models: bool = False,
    **options: Any,
) -> None:
    """Add `--url` (`help_text` and `options` are for argparse), `--api-key` and, if `models`, `--model-name`, which may
    be repeated if `several_models`."""
    parser.add_argument("--url", type=server_url, metavar="URL", help=help_text, **options)
    parser.add_argument("--api-key", metavar="KEY", help="key for the server (default: GLINER_CLIENT_API_KEY)")
    if models:
        action, more = ("append", "; repeat the flag to compare") if several_models else ("store", "")
        model_help = f"a model of the server (default: its default model){more}"
        parser.add_argument("--model-name", metavar="NAME", action=action, help=model_help)


def server_url(given: str) -> str:
    """A server's URL, without a slash at its end; http:// if no scheme is given."""
    return (given if "://" in given else f"http://{given}").rstrip("/")


def add_json(parser: argparse.ArgumentParser, help_text: str = "print JSON") -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help=help_text)


def setting_dest(name: str) -> str:
    """The attribute in which argparse stores the value of a setting."""
    return f"{_SETTING_PREFIX}{name}"


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags."""
    given = vars(options).items()
    return {name.removeprefix(_SETTING_PREFIX): value for name, value in given if name.startswith(_SETTING_PREFIX)}


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The commands, or actions, of a parser, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The flags of a parser, and of its actions."""
    for action in parser._actions:
        yield from action.option_strings
    for command_parser in commands_of(parser).values():
        yield from flags_of(command_parser)
