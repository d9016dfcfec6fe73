"""Reads a JSON value of a file that a person or a program wrote."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gliner_bento.surrogates import without_escaped_surrogates


class _NoJsonValue(ValueError):
    """The file has a name that JSON lacks."""


def json_value(content: str) -> Any:
    """The value, with U+FFFD for lone surrogates. Raises ValueError, and RecursionError if it is nested too deeply."""
    try:
        return msgspec.json.decode(without_escaped_surrogates(content.encode()))
    except msgspec.DecodeError:
        _name_what_python_writes(content)
        raise


def _name_what_python_writes(content: str) -> None:
    """Raise a ValueError that names NaN or Infinity: Python's `json` writes and reads them, pandas writes them too."""
    try:
        json.loads(content, parse_constant=_refuse)
    except _NoJsonValue:
        raise
    except (ValueError, RecursionError):  # another fault
        return


def _refuse(name: str) -> None:
    raise _NoJsonValue(f"{name} is no JSON value; write null") from None
