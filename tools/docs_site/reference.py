"""What the site has beyond the pages of docs/, made of declarations: the HTTP API of the OpenAPI document, the command
line of its own --help, and the table of settings."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from gliner_bento import cli
from gliner_bento.cli.flags import parser as cli_parser
from gliner_bento.cli.parsers import commands_of
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.settings import Settings
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.marks import notes
from gliner_bento.settings.names import aliases_of

_API_HEAD = """\
# HTTP API

The routes of a server, generated from its OpenAPI document. A server has the document at `/docs.json`, and a page where
they can be tried (Swagger UI) at `/`. [Errors](../errors.md) explains the codes.
"""
_COMMANDS_HEAD = """\
# Command line

What `gliner-bento COMMAND --help` prints. Flags that are settings are explained in [Settings](../settings.md).
"""
_KINDS = {int: "integer", float: "number", str: "text", SecretStr: "text", Path: "path"}


def http_api_page() -> str:
    """The page of all routes, by tag."""
    app = GatewayApp(Settings.load().view(GatewayOptions))
    document: dict[str, Any] = json.loads(app.document)
    schemas = document["components"]["schemas"]
    pieces = [_API_HEAD]
    for tag in document["tags"]:
        pieces.append(f"\n## {tag['name'].capitalize()}\n\n{tag['description']}\n")
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag["name"]]:
                    pieces += _operation(f"{method.upper()} {path}", operation, schemas)
    pieces.append("\n## Types\n")
    for name in sorted(schemas):
        schema = schemas[name]
        fields = _fields(schema) if "properties" in schema else [f"{_type(schema)}\n"]
        pieces += [f"\n### {name}\n\n{_cell(schema.get('description', ''))}\n\n", *fields]
    return "".join(pieces)


def _operation(title: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### `{title}`\n\n{operation['summary']}.\n"
    if about := operation.get("description"):
        yield f"\n{about}\n"
    if parameters := operation.get("parameters"):
        yield "\n| Parameter | In | Description |\n|---|---|---|\n"
        for one in parameters:
            yield f"| `{one['name']}` | {one['in']} | {_cell(one.get('description', ''))} |\n"
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"\nRequest ({media}): {_type(body['schema'])}\n"
        if "example" in body and media == "application/json":
            yield f"\n```json\n{json.dumps(body['example'], indent=2, ensure_ascii=False)}\n```\n"
    errors, body = [], ""
    for status, answer in operation["responses"].items():
        kinds = sorted({_type(body["schema"]) for body in answer.get("content", {}).values() if "schema" in body})
        if status < "400":
            yield f"\nAnswer ({status}, {answer['description']}): {', '.join(kinds) or 'no body'}\n"
        else:
            codes = (f"[`{code}`](../errors.md#{code})" for code in answer["description"].split(" or ") if code)
            errors.append(f"{status} {' or '.join(codes)}".strip())
            body = ", ".join(kinds)
    if errors:
        yield f"\nErrors ({body}): {', '.join(errors)}\n"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "| Field | Type | Description |\n|---|---|---|\n"
    for name, field in schema["properties"].items():
        kind = _type(field)
        if name in schema.get("required", ()) or "default" not in field or field["default"] is None:
            default = ""
        else:
            default = f", default `{json.dumps(field['default'])}`"
        yield f"| `{name}` | {kind}{default} | {_cell(field.get('description', ''))} |\n"


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in words, with links to the types that it names."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": branches} | {"oneOf": branches}:
            return " or ".join(dict.fromkeys(_type(one) for one in branches))
        case {"enum": values}:
            return ", ".join(f"`{json.dumps(value)}`" for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"const": value}:
            return f"`{json.dumps(value)}`"
    values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    inner = [_type(one) for one in values if isinstance(one, Mapping)]
    return f"map of {' or '.join(inner)}" if inner else str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def command_line_page() -> str:
    """The page of all commands."""
    pieces = [_COMMANDS_HEAD]
    for words in _commands(()):
        pieces.append(f"\n## `gliner-bento{''.join(f' {word}' for word in words)}`\n\n```text\n{_help(words)}```\n")
    return "".join(pieces)


def _commands(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A command and those below it."""
    parser = cli_parser()
    for word in words:
        parser = commands_of(parser)[word]
    yield tuple(words)
    for name in commands_of(parser):
        yield from _commands([*words, name])


def _help(words: Sequence[str]) -> str:
    output = io.StringIO()
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            cli.main([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width
    return output.getvalue()


def settings_table() -> str:
    """Every setting."""
    rows = [
        f"| `{name}` | {_description(name, field)} | {_code(field.default)} | {_allowed(field)} |\n"
        for name, field in Settings.model_fields.items()
    ]
    return "| Setting | Description | Default | Allowed values |\n|---|---|---|---|\n" + "".join(rows)


def _description(name: str, field: FieldInfo) -> str:
    aliases = (f"gliner.serve's name: `{alias}`." for alias in aliases_of(name))
    return " ".join([str(field.description), *notes(field.metadata), *aliases])


def _code(value: object) -> str:
    if isinstance(value, tuple) and value:
        return ", ".join(map(_code, value))  # a line can end between the elements of a list
    return "unset" if value in (None, (), {}) else f"`{text_of(value)}`"


def _allowed(field: FieldInfo) -> str:
    """The allowed values of a setting, in words."""
    if field.annotation is bool:
        return "`true`, `false`"
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    return _bounds(field.metadata) or _kind(field.annotation)


def _bounds(bounds: Iterable[object]) -> str:
    return ", ".join(filter(None, map(_bound, bounds)))


def _bound(bound: object) -> str | None:
    if isinstance(bound, Ge):
        return f"at least {bound.ge}"
    if isinstance(bound, Gt):
        return f"more than {bound.gt}"
    if isinstance(bound, Le):
        return f"at most {bound.le}"
    pattern: str | None = getattr(bound, "pattern", None)
    return pattern and "`" + pattern.replace("|", r"\|") + "`"


def _kind(annotation: Any) -> str:
    """The kind of a value that has no bounds of its own."""
    if get_origin(annotation) is tuple:
        number, field = get_args(get_args(annotation)[0])
        return f"comma-separated {_KINDS[number]}s, each {_bounds(field.metadata)}"
    if get_origin(annotation) is dict:
        return "JSON object"
    if get_origin(annotation) is UnionType or get_origin(annotation) is Union:  # with None
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return _KINDS[annotation]
