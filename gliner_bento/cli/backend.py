"""The clients of `extract`, `bulk` and similar commands: each calls a server (`--url`), or a model in this process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from gliner_bento.cli.parsers import CommandError, add_server
from gliner_bento.errors import GLiNERBentoError, InvalidField, StartupError, Unauthorized, install_hint, one_line
from gliner_bento.process.exits import write_line
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings.marks import FlagOfCommands, marked
from gliner_bento.settings.names import flag_name
from gliner_bento.storage import lists

SETTINGS = tuple(marked(Settings, FlagOfCommands))
"""Flags of commands with a model in this process."""

_TIMEOUT_S = 600.0


@contextmanager
def failing_in_one_line(command: str, url: str = "") -> Iterator[None]:
    """Turn any error of a file, the model or the server into a `CommandError` that begins with the command's name."""
    import httpx  # noqa: PLC0415  # not every command needs it

    try:
        yield
    except (SettingsError, BrokenPipeError):
        raise
    except httpx.HTTPError as error:
        raise CommandError(f"{command}: {url}: {one_line(error)}") from None
    except (GLiNERBentoError, StartupError, OSError, ValueError) as error:
        raise CommandError(f"{command}: {explained(error)}") from None


def explained(error: Exception) -> str:
    """An error on one line, with the flag that helps in place of the field or header of the API."""
    if isinstance(error, Unauthorized):
        return "the server needs an API key: give it with --api-key KEY"
    return one_line(error)


def add_flags(parser: argparse.ArgumentParser, *, several: bool, several_models: bool = False) -> None:
    """Add flags for what to extract, and for the server. several, several_models: whether `--url`, and
    `--model-name`, may be repeated."""
    parser.add_argument("--labels", metavar="NAMES", help="separated by commas; or @FILE (YAML or JSON)")
    parser.add_argument("--relations", metavar="NAMES", help="as --labels")
    parser.add_argument("--threshold", type=float, metavar="X", help="lowest score of an entity, 0 to 1")
    parser.add_argument("--relation-threshold", type=float, metavar="X", help="lowest score of a relation, 0 to 1")
    parser.add_argument(
        "--relation-window", choices=["whole", "sentences"], help="text per pass for relations (default: the server's)"
    )
    parser.add_argument("--adapter-id", metavar="ID", help="LoRA adapter to use")
    parser.add_argument("--nested", action="store_true", help="allow entities inside other entities")
    parser.add_argument("--allow-list", metavar="TEXTS", help="texts that are no finds; as --labels")
    parser.add_argument("--deny-list", metavar="TEXTS", help="texts that always are")
    more = "; repeat the flag for several" if several else ""
    add_server(
        parser,
        f"use this server{more}; default: load the model here",
        several_models=several_models,
        action="append",
        default=[],
    )


def add_schema_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for classifications and structures, which only some models support."""
    add_classify(parser)
    parser.add_argument(
        "--structures",
        metavar="FILE|JSON",
        help="records to extract: {name: fields} as in the API, given as JSON or in a file (YAML or JSON)",
    )


def add_classify(parser: argparse.ArgumentParser) -> None:
    """Add a flag for classifications."""
    parser.add_argument(
        "--classify",
        action="append",
        metavar="NAME=LABELS",
        help="choose one of the labels for the text; NAME=@FILE: labels, groups or options, as in the API; repeatable",
    )


def request_fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a request that the options set, except `labels`. Raises `CommandError`."""
    fields = {
        "relations": names(options.relations, "--relations"),
        "threshold": options.threshold,
        "relation_threshold": options.relation_threshold,
        "relation_window": options.relation_window,
        "adapter_id": options.adapter_id,
        "flat_ner": False if options.nested else None,
        "classifications": _classifications(getattr(options, "classify", None) or []),
        "structures": _structures(getattr(options, "structures", None)),
        **list_fields(options),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _classifications(given: Sequence[str]) -> dict[str, Any] | None:
    """The labels of each classification, by name. given: `NAME=LABELS`. Raises `CommandError`."""
    named = [classification.partition("=") for classification in given]
    for name, _, labels in named:
        if not name.strip() or not labels:
            raise CommandError(f"--classify: {name!r}: must be NAME=LABELS")
    return {name.strip(): names(labels, "--classify") for name, _, labels in named} or None


def _structures(given: str | None) -> dict[str, Any] | None:
    """The fields of each structure, by name. given: JSON, or a file's path. Raises `CommandError`."""
    if given is None:
        return None
    is_json = given.lstrip().startswith("{")
    content = _parsed(given, "--structures", "") if is_json else read_yaml(Path(given), "--structures")
    if not isinstance(content, dict) or not content:
        raise CommandError('--structures: must be {name: fields}, such as {"person": ["name", "age"]}')
    return content


def list_fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a request with lists. Raises `CommandError`."""
    kinds: tuple[lists.Kind, ...] = ("allow_list", "deny_list")
    return {kind: _entries(kind, getattr(options, kind)) for kind in kinds}


def _entries(kind: lists.Kind, value: str | None) -> Any:
    """The entries of a list in a flag's value, or in its @FILE. Raises `CommandError`."""
    flag = flag_name(kind)
    if value is None or not value.startswith("@"):
        return None if value is None else comma_separated(value, flag)
    try:
        return lists.read_entries(kind, value[1:])
    except ValueError as error:
        raise CommandError(f"{flag}: {error}") from None


def comma_separated(value: str, flag: str) -> list[str]:
    """The names in a flag's value. Raises `CommandError` if there is none."""
    if not (given := [name for name in map(str.strip, value.split(",")) if name]):
        raise CommandError(f"{flag}: has no names")
    return given


def names(value: str | None, flag: str) -> list[str] | dict[str, str] | None:
    """The names in a flag's value, or the names and descriptions in its @FILE. Raises `CommandError`.

    A name without a description (`name:` in YAML) has itself as one. A file of `--classify` may have options instead.
    """
    if value is None:
        return None
    if not value.startswith("@"):
        return comma_separated(value, flag)
    content = read_yaml(path := Path(value[1:]), flag)
    if not isinstance(content, list | dict) or not content:
        raise CommandError(f"{flag}: {path}: must be a list of names, or names with descriptions")
    if others := [name for name in content if not isinstance(name, str)]:
        raise CommandError(f"{flag}: {path}: {others[0]} is not text in YAML; put it in quotes")
    if isinstance(content, dict) and (flag != "--classify" or not any(content.values())):
        return {name: name if value is None else value for name, value in content.items()}
    return content


def read_yaml(path: Path, flag: str) -> Any:
    """The content of a file, YAML or JSON. Raises `CommandError`."""
    try:
        return _parsed(path.read_bytes(), flag, f"{path}: ")
    except OSError as error:
        raise CommandError(f"{flag}: {path}: {error.strerror}") from None


def _parsed(content: str | bytes, flag: str, where: str) -> Any:
    """Parsed YAML or JSON. where: follows the flag in an error message. Raises `CommandError`."""
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandError(f"{flag}: {where}invalid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise CommandError(f"{flag}: {where}nested too deeply") from None


@asynccontextmanager
async def clients(
    options: argparse.Namespace, flags: Mapping[str, Any], adjust: Callable[[Settings], Settings] = lambda given: given
) -> AsyncIterator[Sequence[Any]]:
    """An `AsyncClient` for each URL; without URLs, one for a model in this process, whose settings `adjust` changes."""
    if options.url and flags:
        raise CommandError(f"{flag_name(next(iter(flags)))}: is for a model in this process; leave out --url")
    if options.model_name and not options.url:
        raise CommandError("--model-name: is for the models of a server; name the server with --url")
    client_options = {"api_key": options.api_key, "model": options.model_name, "timeout_s": _TIMEOUT_S}
    async with AsyncExitStack() as stack:
        if options.url:
            from gliner_bento.client import AsyncClient  # noqa: PLC0415
            from gliner_bento.client.calls import checked_url  # noqa: PLC0415

            for url in options.url:
                try:
                    checked_url(url)
                except InvalidField as error:
                    raise CommandError(f"{options.command}: --{error}") from None
            yield [await stack.enter_async_context(AsyncClient(url, **client_options)) for url in options.url]
        else:
            try:
                from gliner_bento.process.in_process import in_process  # noqa: PLC0415  # imports torch
            except ModuleNotFoundError as missing:
                text = f"a model in this process needs {missing.name}; name a server with --url, or"
                raise CommandError(f"{text} {install_hint('serve')}") from None
            settings = adjust(Settings.load(flags))
            if getattr(options, "adapter_id", None) and not settings.enable_lora:
                raise CommandError(f"{options.command}: --adapter-id: add --enable-lora")
            announce_loading(settings.model)
            yield [await stack.enter_async_context(in_process(settings))]


@asynccontextmanager
async def client(
    options: argparse.Namespace, flags: Mapping[str, Any], adjust: Callable[[Settings], Settings] = lambda given: given
) -> AsyncIterator[Any]:
    """As `clients`, for at most one URL; errors are reported in one line."""
    if len(options.url) > 1:
        raise CommandError(f"{options.command}: --url: give only one")
    with failing_in_one_line(options.command, *options.url):
        async with clients(options, flags, adjust) as (only_client,):
            yield only_client


def one_off(settings: Settings, checks: Sequence[str] = ("self_test", "batch_invariant")) -> Settings:
    """Settings for a few requests: the `checks` at start are off, except those that are set explicitly."""
    return settings.model_copy(update=dict.fromkeys(set(checks) - settings.model_fields_set, False))


def announce_loading(model: str) -> None:
    """Write one line if standard error is a terminal, because loading takes seconds."""
    if sys.stderr.isatty():
        write_line(f"loading {model} ...")
