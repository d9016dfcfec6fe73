"""The columns that an extraction adds to a record: values and Arrow types."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from gliner_bento.errors import StartupError, install_hint
from gliner_bento.tasks.extraction import Extraction

Row = dict[str, Any]

RESULT_COLUMNS = ("entities", "relations")
SCHEMA_COLUMNS = ("classifications", "structures")
"""Columns that are added only for requests with these fields."""


def result_columns(result: Extraction, more: Iterable[str] = ()) -> Row:
    """The values of the columns `RESULT_COLUMNS` and `more`, which is a part of `SCHEMA_COLUMNS`."""
    return {
        **{name: msgspec.to_builtins(getattr(result, name)) for name in more},
        "entities": [asdict(entity) for entity in result.entities],
        "relations": [asdict(relation) for relation in result.relations],
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
    span = [("start", pa.int64()), ("end", pa.int64()), ("text", pa.string()), ("label", pa.string())]
    score = ("score", pa.float64())
    argument = pa.struct([("entity_idx", pa.int64()), *span])
    relation = pa.struct([("relation", pa.string()), score, ("head", argument), ("tail", argument)])
    labels = pa.struct([("labels", pa.list_(pa.struct([("label", pa.string()), score]))), ("merge", pa.string())])
    value = pa.struct([("text", pa.string()), score, *span[:2]])
    schema_types = {
        "classifications": pa.map_(pa.string(), labels),
        "structures": pa.map_(pa.string(), pa.list_(pa.map_(pa.string(), pa.list_(value)))),
    }
    result_types = {"entities": pa.list_(pa.struct([*span, score])), "relations": pa.list_(relation)}
    return result_types | {name: schema_types[name] for name in more}


def pyarrow() -> Any:
    """Import and return pyarrow. Raises `StartupError` if it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415  # an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise StartupError(f"Parquet needs pyarrow; {install_hint('bulk')}") from None
    return pyarrow
