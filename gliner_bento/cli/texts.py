"""Output of commands, as text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines, the first with the names of the columns. A column with nothing but its name is left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:]) or not rows[1:]]
    widths = [max(map(len, column)) for column in columns]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in zip(*columns, strict=True))


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
