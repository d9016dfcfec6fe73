"""Turns pydantic's errors into one of ours that names the fields. Messages never contain values of the request."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError
from typing_extensions import is_typeddict

from gliner_bento.errors import GLiNERBentoError, InvalidField, MalformedRequest

_UNKNOWN, _MISSING = "extra_forbidden", "missing"
_MAX_NAMED = 5
_MAX_NAME_CHARS = 100

_BRANCH_TYPES = {"list_type", "dict_type"}
_MADE_UP = re.compile(r"(list|dict|constrained-str|function-[a-z]+)\[.*\]|\[key\]|constrained-str|str|bool|int|float")
"""Parts of an error's path that pydantic adds: branches of unions, and keys of dictionaries."""


def from_model(invalid: ValidationError, model: type[Any] | None = None) -> GLiNERBentoError:
    """`from_validation` of a pydantic error."""
    return from_validation(invalid.errors(include_context=False, include_input=False, include_url=False), model)


def from_validation(errors: Sequence[Mapping[str, Any]], model: type[Any] | None = None) -> GLiNERBentoError:
    """One error for pydantic's list. It names all unknown and missing fields, because an unknown field is often a
    missing one misspelt; without any, it is the first error that is not about another branch of a union.

    model: the type that was validated; its fields are suggested for an unknown one.
    """
    first = next((error for error in errors if error["type"] not in _BRANCH_TYPES), errors[0])
    if first["type"] == "json_invalid":
        return MalformedRequest(f"the body is not valid JSON ({first['msg'].removeprefix('Invalid JSON: ')})")
    named = [error for kind in (_UNKNOWN, _MISSING) for error in errors if error["type"] == kind]
    if named:
        return _wrong_names(named, model)
    path = _path(first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in _BRANCH_TYPES and len(errors) > 1:
        message = "Input should be a list, or a {name: description} object"
        if len(deepest := max((error["loc"] for error in errors), key=len)) > len(first["loc"]):  # in a value
            path, message = _path(deepest), "Input should be a description, or an object with options"
    return InvalidField(f"{path or 'body'}: {message}", param=path or None)


def _wrong_names(errors: Sequence[Mapping[str, Any]], model: type[Any] | None) -> InvalidField:
    """errors: about unknown and missing fields. The first gives the error its `param`."""
    messages = [f"{_path(error['loc'], named=True)}: {_problem(error, model)}" for error in errors[:_MAX_NAMED]]
    if more := len(errors) - len(messages):
        messages.append(f"and {more} more")
    return InvalidField("; ".join(messages), param=_path(errors[0]["loc"], named=True))


def _problem(error: Mapping[str, Any], model: type[Any] | None) -> str:
    return f"unknown field{_suggestion(error['loc'], model)}" if error["type"] == _UNKNOWN else str(error["msg"])


def _path(loc: Sequence[str | int], *, named: bool = False) -> str:
    """The path without the parts that pydantic adds. named: keep the last part, which is the name of a field."""
    last = len(loc) - 1
    parts = [part for index, part in enumerate(loc) if (named and index == last) or not _MADE_UP.fullmatch(str(part))]
    return ".".join(str(part)[:_MAX_NAME_CHARS] for part in parts)


def _suggestion(loc: Sequence[str | int], model: type[Any] | None) -> str:
    """loc: of the unknown field."""
    *parents, name = loc
    if len(str(name)) > _MAX_NAME_CHARS:
        return ""
    nearest = difflib.get_close_matches(str(name).lower(), _fields(parents, model), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


def _fields(parents: Iterable[str | int], model: type[Any] | None) -> Sequence[str]:
    """The fields of the model at a path in `model`. Skips parts that name no field (numbers, branches, keys)."""
    for part in parents:
        if model is not None and part in (fields := _annotations(model)):
            model = _model_in(fields[str(part)])
    return list(_annotations(model)) if model is not None else ()


def _annotations(model: type[Any]) -> Mapping[str, Any]:
    if is_typeddict(model):
        return get_type_hints(model)
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[Any] | None:
    """The model in a type like `list[Model] | None`."""
    if isinstance(annotation, type) and (is_typeddict(annotation) or issubclass(annotation, BaseModel)):
        return annotation
    return next((model for argument in get_args(annotation) if (model := _model_in(argument))), None)
