"""Validates long lists and objects of requests up to their first wrong element.

pydantic collects an error for each wrong element, and a body may have hundreds of thousands: they took as many
microseconds, in which the event loop stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

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
