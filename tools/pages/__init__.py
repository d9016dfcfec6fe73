"""Generates the tables of pages in docs/ and of the chart's README, and files of the chart, from what they are about.

`python -m tools.pages` writes them; with `--check` it writes nothing, and returns 1 if one is stale."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.names import aliases_of
from gliner_bento.telemetry import metrics

from . import chart, gliner_serve

SETTINGS_PAGE = PROJECT_ROOT / "docs" / "settings.md"
METRICS_PAGE = PROJECT_ROOT / "docs" / "metrics.md"

_KINDS = {int: "integer", float: "number", str: "text", SecretStr: "text", Path: "path"}

_BEGIN, _END = "<!-- generated -->\n", "<!-- end -->\n"


def main(*, check: bool) -> int:
    """Write the generated files, or with `check` write nothing and return 1 if one is stale."""
    made = [(path, with_table(path, table)) for path, table in tables().items()] + [*chart.files().items()]
    return max(write(path, content, check=check) for path, content in made)


def tables() -> dict[Path, str]:
    """The generated table of each page."""
    return {
        SETTINGS_PAGE: settings_table(),
        METRICS_PAGE: metrics_table(),
        gliner_serve.PAGE: gliner_serve.table(),
        chart.PAGE: chart.table(),
    }


def with_table(page: Path, table: str) -> str:
    """A page with the table between its marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{page}: has no place for the generated table")
    return f"{before}{begin}\n{table}\n{end}{after}"


def write(path: Path, content: str, *, check: bool) -> int:
    """Write a file, or with `check` write nothing and return 1 if it is stale."""
    if not check:
        path.write_text(content, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return 0
    sys.stderr.write(f"{path} is stale: run `make docs`\n")
    return 1


def settings_table() -> str:
    """Every setting."""
    rows = [
        f"| `{name}` | {_code(field.default)} | {_allowed(field)} | {_help(name, field)} |\n"
        for name, field in Settings.model_fields.items()
    ]
    return "| Setting | Default | Allowed values | Description |\n|---|---|---|---|\n" + "".join(rows)


def metrics_table() -> str:
    """Every metric."""
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {documentation} |\n"
        for name, kind, labels, documentation in metrics.declared()
    ]
    return "| Metric | Type | Labels | Description |\n|---|---|---|---|\n" + "".join(rows)


def _help(name: str, field: FieldInfo) -> str:
    return " ".join([str(field.description), *(f"gliner.serve's name: `{alias}`." for alias in aliases_of(name))])


def _code(value: object) -> str:
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
