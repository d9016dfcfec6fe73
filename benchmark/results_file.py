"""How results are stored: compact JSON, one line for each of the outermost names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DIGITS = 7
"""Significant digits of a number that is no integer."""


def write(file: Path, data: Mapping[str, Any]) -> None:
    """Write `data` into `file`."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(_rounded(value), separators=(',', ':'))}" for name, value in data.items()
    )
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(one) for one in value]
    return value
