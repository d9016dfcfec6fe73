"""The types of fields in JSON bodies, of any task and any wire format.

Long lists and objects are validated up to their first wrong element. Otherwise, pydantic would collect an error for
each element; hundreds of thousands of errors would block the event loop for as many microseconds.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    model_validator,
)

MAX_FIELDS = 50

Anything = TypeVar("Anything")


def check_fields(value: Any) -> Any:
    """Raise ValueError for an object with more than `MAX_FIELDS` fields."""
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise ValueError(f"{len(value)} fields; the limit is {MAX_FIELDS}")
    return value


class _FailFast:
    """As pydantic's `Field(fail_fast=True)`, but also in unions. For objects, it has an effect since pydantic 2.12."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return _fail_fast(handler(source))


def _fail_fast(schema: Any) -> Any:
    if schema["type"] in ("list", "dict"):
        return {**schema, "fail_fast": True}
    if schema["type"] == "union":
        return {**schema, "choices": [_fail_fast(choice) for choice in schema["choices"]]}
    return {**schema, "schema": _fail_fast(schema["schema"])} if "schema" in schema else schema


Elements = Annotated[Anything, _FailFast()]
"""Marks the type of a list, or of an object whose names the caller chooses."""

Fields = Annotated[Anything, BeforeValidator(check_fields)]
"""Marks the type of an object that forbids unknown fields."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]
Names = Elements[list[Name] | dict[Name, Name]]
Score = Annotated[float, Field(ge=0, le=1)]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\-]{1,128}$")]


class Lenient(BaseModel):
    """Unknown fields are ignored, for clients that send more than a server needs. Values must have the right type."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class Strict(BaseModel):
    """Unknown fields are errors, and so are values of another type: `"0.5"` is not a number.

    Error messages do not contain the input: messages are logged, and the callers' texts must not be.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    _check_fields = model_validator(mode="before")(check_fields)
