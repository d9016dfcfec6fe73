"""Extracts from the texts of a column of a pandas or polars DataFrame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gliner_bento.client import Client
from gliner_bento.client.calls import Labels
from gliner_bento.files.records.columns import RESULT_COLUMNS, SCHEMA_COLUMNS, check_columns, result_columns
from gliner_bento.tasks.extraction import BatchResult, Extraction

Asked = Mapping[str, Any]
"""The classifications and structures of a request, by the name of their column."""
Columns = Mapping[str, list[Any]]
"""The values of the columns that are added."""


def add_extractions(
    client: Client, frame: Any, labels: Labels | None = None, *, column: str = "text", **options: Any
) -> Any:
    """A copy of the frame with three more columns: `entities`, `relations` (lists, as in the API) and `error`; and
    `classifications` and `structures` where they are asked for.

    A null is an empty text. `error` is null, or the server's error message for the text; such a row has no entities.
    labels, options: as in `Client.extract_many`. Raises TypeError for what is no DataFrame, ValueError for its columns.
    """
    library = _library(frame)
    asked = {name: options[name] for name in SCHEMA_COLUMNS if options.get(name)}
    added = [*RESULT_COLUMNS, *asked, "error"]
    check_columns(frame.columns, [column], added)
    texts = frame[column].to_list()
    if wrong := next((one for one in texts if not isinstance(one, str) and not _is_null(one)), None):
        raise ValueError(f"column {column!r} must be strings, not {type(wrong).__name__}")
    results = client.extract_many(("" if _is_null(one) else one for one in texts), labels, **options)
    values = [_values(one, asked) for one in results]
    return _POLARS_OR_PANDAS[library](frame, {name: [one[name] for one in values] for name in added}, asked)


def entity_table(frame: Any) -> Any:
    """One row for each entity of a frame with `entities`: its `row` (of pandas, the index), and the entity's fields."""
    library = _library(frame)
    check_columns(frame.columns, ["entities"], ())
    numbers = frame.index if library == "pandas" else range(len(frame))
    rows = [{"row": row, **one} for row, found in zip(numbers, frame["entities"], strict=True) for one in found]
    columns = ["row", "start", "end", "text", "label", "score"]
    if library == "pandas":
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(rows, columns=columns)
    import polars as pl  # noqa: PLC0415

    types = [pl.Int64, pl.Int64, pl.Int64, pl.String, pl.String, pl.Float64]
    return pl.DataFrame(rows, schema=dict(zip(columns, types, strict=True)))


def _library(frame: Any) -> str:
    library = type(frame).__module__.partition(".")[0]
    if library not in _POLARS_OR_PANDAS or type(frame).__name__ != "DataFrame":
        raise TypeError(f"frame: must be a DataFrame of pandas or polars, not {type(frame).__name__}")
    return library


def _is_null(value: Any) -> bool:
    """None, or what pandas has in its place."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def _values(one: BatchResult, asked: Asked) -> dict[str, Any]:
    error = f"{one.error.code}: {one.error.message}" if one.error else None
    return {**result_columns(one.result or Extraction(()), asked), "error": error}


def _pandas(frame: Any, columns: Columns, _: Asked) -> Any:
    import pandas as pd  # noqa: PLC0415

    return frame.assign(**{name: pd.Series(column, frame.index, dtype=object) for name, column in columns.items()})


def _polars(frame: Any, columns: Columns, asked: Asked) -> Any:
    import polars as pl  # noqa: PLC0415

    span = {"start": pl.Int64, "end": pl.Int64, "text": pl.String, "label": pl.String}
    argument = pl.Struct({"entity_idx": pl.Int64, **span})
    relation = {"relation": pl.String, "score": pl.Float64, "head": argument, "tail": argument}
    classes = pl.Struct({"labels": pl.List(pl.Struct({"label": pl.String, "score": pl.Float64})), "merge": pl.String})
    value = pl.Struct({"text": pl.String, "score": pl.Float64, "start": pl.Int64, "end": pl.Int64})
    types = {
        "entities": pl.List(pl.Struct({**span, "score": pl.Float64})),
        "relations": pl.List(pl.Struct(relation)),
        "classifications": pl.Struct(dict.fromkeys(asked.get("classifications", ()), classes)),
        "structures": pl.Struct(
            {
                name: pl.List(pl.Struct(dict.fromkeys(fields, pl.List(value))))
                for name, fields in asked.get("structures", {}).items()
            }
        ),
        "error": pl.String,
    }
    return frame.with_columns(
        [pl.Series(name, column, dtype=types[name], strict=False) for name, column in columns.items()]
    )


_POLARS_OR_PANDAS = {"pandas": _pandas, "polars": _polars}
