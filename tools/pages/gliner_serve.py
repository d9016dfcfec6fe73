"""The table of docs/migrate/gliner-serve.md: what each flag, field and variable of gliner.serve is here."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from gliner_bento.serve.config import GLiNERServeConfig
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.settings.gliner_serve import NO_EFFECT, OPTIONS, Option

PAGE = PROJECT_ROOT / "docs" / "migrate" / "gliner-serve.md"

_TABLE_HEAD = (
    "| Flag | Field of `GLiNERServeConfig` | Container variable | gliner.serve's default | Setting here | Default here "
    "| Notes |\n|---|---|---|---|---|---|---|\n"
)


def table() -> str:
    """Every option."""
    return _TABLE_HEAD + "".join(map(_row, OPTIONS))


def _row(option: Option) -> str:
    default = _code(option.default) if option.flag_name else "-"
    if option.field_default != "as the flag" and _code(option.field_default) != default:
        default += f", field {_code(option.field_default)}"
    cells = (
        _code(option.flag_name) if option.flag_name else "-",
        _code(option.field),
        _code(option.variable) if option.variable else "-",
        default if option.flag_name else f"field {_code(option.default)}",
        _code(option.setting) if option.setting else "-",
        _our_default(option),
        _note(option),
    )
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


def _note(option: Option) -> str:
    if option.check and option.note == NO_EFFECT:
        return f"{NO_EFFECT}: {option.check(option.default)}"
    return option.note


def _our_default(option: Option) -> str:
    if option.note == NO_EFFECT or option.field == "model":
        return "-"
    (own,) = (one for one in fields(GLiNERServeConfig) if one.name == option.field)
    return _code(list(own.default_factory()) if own.default_factory is not MISSING else own.default)


def _code(value: Any) -> str:
    if value in (None, "required"):
        return "unset" if value is None else "required"
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return f"`{value}`".replace("|", r"\|")
