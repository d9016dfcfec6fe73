"""The columns that an extraction adds to a record: values and types."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from gliner_bento.errors import StartupError, install_hint
from gliner_bento.tasks.extraction import BASIC_PARTS, OPTIONAL_PARTS, Extraction

Row = dict[str, Any]

RESULT_COLUMNS = tuple(part.result for part in BASIC_PARTS)
SCHEMA_COLUMNS = tuple(part.result for part in OPTIONAL_PARTS)
"""Columns that are added only for requests with these fields."""


def result_columns(result: Extraction, more: Iterable[str] = ()) -> Row:
    """The values of the columns `RESULT_COLUMNS` and `more`, which is a part of `SCHEMA_COLUMNS`."""
    return {
        **{name: msgspec.to_builtins(getattr(result, name)) for name in more},
        **{name: [asdict(element) for element in getattr(result, name)] for name in RESULT_COLUMNS},
    }


def check_columns(columns: Iterable[str], needed: Iterable[str], added: Iterable[str] = RESULT_COLUMNS) -> None:
    """Raise `ValueError` if a needed column is missing, or if the input has a column that the output would add."""
    present = list(columns)
    for name in needed:
        if name not in present:
            raise ValueError(f"no column {name!r}; there are {', '.join(map(str, present))}{delimiter_hint(present)}")
    if clashing := [name for name in added if name in present]:
        raise ValueError(f"a column of the output is in the input: {', '.join(clashing)}")


def delimiter_hint(columns: Collection[str]) -> str:
    """The end of the message for a missing column, if the only column looks like several."""
    only = "".join(map(str, columns)) if len(columns) == 1 else ""
    if not (mark := next((mark for mark in ";\t|," if mark in only), "")):
        return ""
    shown = "a tab" if mark == "\t" else f"{mark!r}"
    return f"; it is only one column: is {shown} the delimiter? .csv needs commas, .tsv tabs"


def arrow_types(more: Iterable[str] = ()) -> dict[str, Any]:
    """The types of the columns `RESULT_COLUMNS` and `more`, which is a part of `SCHEMA_COLUMNS`."""
    pa = pyarrow()
    scalars = {str: pa.string(), int: pa.int64(), float: pa.float64()}

    def mapping(of_value: Callable[[Any], Any], _: Any) -> Any:
        return pa.map_(pa.string(), of_value(None))

    hints = get_type_hints(Extraction)
    return {
        name: column_type(hints[name], scalars, lambda named: pa.struct(list(named.items())), pa.list_, mapping)
        for name in (*RESULT_COLUMNS, *more)
    }


def column_type(
    kind: Any,
    scalars: Mapping[Any, Any],
    struct: Callable[[dict[str, Any]], Any],
    sequence: Callable[[Any], Any],
    mapping: Callable[[Callable[[Any], Any], Any], Any],
    asked: Any = None,
) -> Any:
    """A library's type for values of a type of results: a scalar, an optional, a dataclass, or a sequence or mapping of
    these. Literals are strings.

    struct, sequence: make the library's types. mapping: makes a type from a function that returns the type of the
    values, given what was asked for them, and from what was asked. asked: the request's option, of which the names of a
    mapping are.
    """

    def inner(of: Any, asked: Any = None) -> Any:
        return column_type(of, scalars, struct, sequence, mapping, asked)

    if kind in scalars:
        return scalars[kind]
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return struct({field.name: inner(hints[field.name]) for field in fields(kind)})
    arguments = [argument for argument in get_args(kind) if argument is not NoneType]
    if NoneType in get_args(kind):
        return inner(arguments[0])
    if isinstance(arguments[0], str):
        return scalars[str]
    if get_origin(kind) is collections.abc.Mapping:
        return mapping(lambda asked: inner(arguments[1], asked), asked)
    return sequence(inner(arguments[0], asked))


def pyarrow() -> Any:
    """Import and return pyarrow. Raises `StartupError` if it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415  # an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise StartupError(f"Parquet needs pyarrow; {install_hint('bulk')}") from None
    return pyarrow
