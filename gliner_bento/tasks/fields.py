"""The types of fields in JSON bodies, of any task and any wire format.

Long lists and objects are validated up to their first wrong element: pydantic collects an error for each, and a body
may have hundreds of thousands. They took as many microseconds, in which the event loop stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

MAX_FIELDS = 50
_FEW = 10
_PART = 20

Anything = TypeVar("Anything")


def check_fields(value: Any) -> Any:
    """Raises ValueError for an object with more than `MAX_FIELDS` fields."""
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise ValueError(f"{len(value)} fields of at most {MAX_FIELDS}")
    return value


def _up_to_the_first_wrong(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """A list or an object that ends with its first wrong element has its errors only, at their place."""
    if isinstance(value, list | dict) and len(value) > _FEW:
        make: Callable[[Any], Any] = type(value)
        elements = list(value.items()) if isinstance(value, dict) else value
        at = _first_wrong(elements, 0, _PART, lambda part: validate(make(part)))
        at = _first_wrong(elements, at, 1, lambda part: validate(make(part)))
        value = make(elements[: at + 1])
    return validate(value)


def _first_wrong(elements: Sequence[Any], begin: int, number: int, validate: Callable[[Any], Any]) -> int:
    """Where the first invalid part of so many elements begins; behind the last one if all are valid."""
    for at in range(begin, len(elements), number):
        try:
            validate(elements[at : at + number])
        except ValidationError:
            return at
    return len(elements)


Elements = Annotated[Anything, WrapValidator(_up_to_the_first_wrong)]
"""Of a list, or of an object with names of the caller's choice."""

Fields = Annotated[Anything, BeforeValidator(check_fields)]
"""Of an object that forbids unknown ones."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]
Names = Elements[list[Name] | dict[Name, Name]]
Score = Annotated[float, Field(ge=0, le=1)]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\-]{1,128}$")]


class Strict(BaseModel):
    """Unknown fields are errors, and so are values of another type: `"0.5"` is not a number.

    Error messages do not contain the input: messages are logged, and the callers' texts must not be.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    _check_fields = model_validator(mode="before")(check_fields)
