"""Output of commands, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned lines; the first row has the names of the columns. If more rows follow, columns without values
    are left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:]) or not rows[1:]]
    widths = [max(map(len, column)) for column in columns]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in zip(*columns, strict=True))


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number with its noun: `1 file`, `2 files`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def shown(value: Any) -> str:
    """A value of a report; "-" for none."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
