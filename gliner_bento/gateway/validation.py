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

_BRANCH_TYPES = {"list_type", "dict_type"}  # errors about branches of a union, most of which the caller did not mean
_BOOL_BRANCH = "bool"
_NO_FIELD = re.compile(
    r"(list|dict|union|constrained-str|function-[a-z]+)\[.*\]|\[key\]|constrained-str|str|bool|int|float"
)
"""Parts of an error's path that name no field: pydantic adds them for branches of unions and keys of dictionaries."""


def from_model(invalid: ValidationError, model: type[Any] | None = None) -> GLiNERBentoError:
    """`from_validation` for a pydantic error."""
    return from_validation(invalid.errors(include_context=False, include_input=False, include_url=False), model)


def from_validation(errors: Sequence[Mapping[str, Any]], model: type[Any] | None = None) -> GLiNERBentoError:
    """One error for pydantic's list. It names all unknown and missing fields, because an unknown field is often a
    missing one misspelt. If no field is unknown or missing, it is the first error that is not about a branch,
    or else the first error.

    model: the type that was validated, whose field names are suggested for unknown fields.
    """
    first = next((error for error in errors if not _is_branch(error)), errors[0])
    if first["type"] == "json_invalid":
        return MalformedRequest(f"the body is not valid JSON ({first['msg'].removeprefix('Invalid JSON: ')})")
    wrong_names = [error for kind in (_UNKNOWN, _MISSING) for error in errors if error["type"] == kind]
    if wrong_names:
        return _wrong_names(wrong_names, model)
    path, message = _path(first["loc"]), first["msg"].removeprefix("Value error, ")
    if _is_branch(first) and len(errors) > 1:
        path, message = _about_branches(errors)
    return InvalidField(f"{path or 'body'}: {message}", param=path or None)


def _about_branches(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Path and message for a value that no branch of a union takes."""
    deepest = max(errors, key=lambda error: len(error["loc"]))
    path = _path(deepest["loc"])
    if any(error["loc"][-1] == _BOOL_BRANCH for error in errors):
        return path, "Input should be true, false or a list"
    if len(deepest["loc"]) == len(errors[0]["loc"]):
        return path, "Input should be a list, or a {name: description} object"
    if _NO_FIELD.fullmatch(str(deepest["loc"][-1])):  # the value of a label or relation
        return path, "Input should be a description, or an object with options"
    return path, deepest["msg"]


def _is_branch(error: Mapping[str, Any]) -> bool:
    return error["type"] in _BRANCH_TYPES or (len(error["loc"]) > 1 and error["loc"][-1] == _BOOL_BRANCH)


def _wrong_names(errors: Sequence[Mapping[str, Any]], model: type[Any] | None) -> InvalidField:
    """One error for `errors`, which are about unknown and missing fields. Its `param` is the field of the first."""
    messages = [f"{_path(error['loc'], keep_last=True)}: {_problem(error, model)}" for error in errors[:_MAX_NAMED]]
    if more := len(errors) - len(messages):
        messages.append(f"and {more} more")
    return InvalidField("; ".join(messages), param=_path(errors[0]["loc"], keep_last=True))


def _problem(error: Mapping[str, Any], model: type[Any] | None) -> str:
    return f"unknown field{_suggestion(error['loc'], model)}" if error["type"] == _UNKNOWN else str(error["msg"])


def _path(loc: Sequence[str | int], *, keep_last: bool = False) -> str:
    """The path without the parts that pydantic adds. keep_last: keep the last part, because it names a field."""
    kept = {index + 1 for index, part in enumerate(loc) if str(part).startswith("dict[")}  # keys of an object
    kept |= {len(loc) - 1} if keep_last else set()
    parts = [part for index, part in enumerate(loc) if index in kept or not _NO_FIELD.fullmatch(str(part))]
    return ".".join(str(part)[:_MAX_NAME_CHARS] for part in parts)


def _suggestion(loc: Sequence[str | int], model: type[Any] | None) -> str:
    """The end of the message about the unknown field at `loc`: a similar name, or nothing."""
    *parents, name = loc
    if len(str(name)) > _MAX_NAME_CHARS:
        return ""
    nearest = difflib.get_close_matches(str(name).lower(), _fields(parents, model), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest and nearest[0] != name else ""  # equal: of another form


def _fields(parents: Iterable[str | int], model: type[Any] | None) -> Sequence[str]:
    """The field names of the model at the path `parents` in `model`. Skips numbers, branches and keys in the path."""
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
    models = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in models if model), None)
