"""Validates long lists and objects of requests up to their first wrong element.

pydantic collects an error for each wrong element, and a body may have hundreds of thousands: they took as many
microseconds, in which the event loop stood still.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, GetCoreSchemaHandler

MAX_FIELDS = 50

Anything = TypeVar("Anything")


def check_fields(value: Any) -> Any:
    """Raises ValueError for an object with more than `MAX_FIELDS` fields."""
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise ValueError(f"{len(value)} fields of at most {MAX_FIELDS}")
    return value


class _FailFast:
    """pydantic's `Field(fail_fast=True)`, which knows no unions. Of objects, pydantic has it since 2.12."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return _fail_fast(handler(source))


def _fail_fast(schema: Any) -> Any:
    if schema["type"] in ("list", "dict"):
        return {**schema, "fail_fast": True}
    if schema["type"] == "union":
        return {**schema, "choices": [_fail_fast(choice) for choice in schema["choices"]]}
    return {**schema, "schema": _fail_fast(schema["schema"])} if "schema" in schema else schema


Elements = Annotated[Anything, _FailFast()]
"""Of a list, or of an object with names of the caller's choice."""

Fields = Annotated[Anything, BeforeValidator(check_fields)]
"""Of an object that forbids unknown ones."""
