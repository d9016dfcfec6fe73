"""The texts in JSON values: visited and replaced in place, so that the JSON stays valid.

A `Change` gets a text and the name of its field, or None for prose, and returns what replaces it. It is called for the
same texts in the same order in each visit of a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from gliner_bento.errors import InvalidField
from gliner_bento.surrogates import without_escaped_surrogates

Change = Callable[[str, str | None], str]
Keeps = Callable[[str, Any], bool]
"""Whether the value of a field is not visited: gets its name and the value."""

_MAX_DEPTH = 50
_MIN_NUMBER_CHARS = 6
"""Shorter numbers are amounts, not card or phone numbers."""
_PARAMETER = re.compile(r"[A-Za-z_$][\w.$-]*")


def changed(value: Any, change: Change, keeps: Keeps = lambda _name, _value: False, name: str = "") -> Any:
    """A JSON value with its strings changed, and its longer numbers, which become strings, and those of its fields'
    names that are not single words. Raises `InvalidField` for a deeply nested value, and for two fields of an object
    whose names become the same."""
    return _changed(value, change, keeps, name, 0)


def changed_json(text: str, change: Change) -> str:
    """As `changed`, for JSON in a text; a text that is not JSON, or not clearly, is changed as prose. The text itself
    if nothing changes."""
    try:
        readable = without_escaped_surrogates(text.encode("utf-8", "surrogatepass"))
        value = json.loads(readable, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return change(text, None)
    new = changed(value, change)
    return text if new == value else json.dumps(new, ensure_ascii=False)


def _changed(value: Any, change: Change, keeps: Keeps, name: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidField(f"JSON that is nested more than {_MAX_DEPTH} levels deep cannot be redacted")
    if keeps(name, value):
        return value
    if isinstance(value, str):
        return change(value, name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        written = json.dumps(value)
        new = change(written, name) if len(written) >= _MIN_NUMBER_CHARS else written
        return value if new == written else new
    if isinstance(value, list):
        return [_changed(one, change, keeps, name, depth + 1) for one in value]
    if isinstance(value, dict):
        new_fields = {
            key if _PARAMETER.fullmatch(key) else change(key, ""): _changed(one, change, keeps, key, depth + 1)
            for key, one in value.items()
        }
        if len(new_fields) < len(value):
            raise InvalidField("JSON: the names of two fields are replaced by the same text")
        return new_fields
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Raises ValueError for one with two fields of a name: one of them would not be visited."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("two fields have the same name")
    return fields
