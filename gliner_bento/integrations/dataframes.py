"""Extracts from the texts of a column of a pandas or polars DataFrame."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from gliner_bento.client import Client
from gliner_bento.client.calls import Labels
from gliner_bento.files.records.columns import (
    RESULT_COLUMNS,
    SCHEMA_COLUMNS,
    check_columns,
    column_type,
    result_columns,
)
from gliner_bento.tasks.extraction import BatchResult, Extraction
from gliner_bento.tasks.labels import ENTITIES

Schemas = Mapping[str, Any]
"""The request's options for `SCHEMA_COLUMNS`, those that are given; they are also names of columns."""
Columns = Mapping[str, list[Any]]
"""The values of each added column, by its name."""


def add_extractions(
    client: Client, frame: Any, labels: Labels | None = None, *, column: str = "text", **options: Any
) -> Any:
    """A copy of the frame with the added columns `entities`, `relations` (lists, as in the API) and `error`, and with
    `classifications` and `structures` if `options` has them.

    A null counts as an empty text. `error` is null, or the server's error for the text; such a row has no entities.
    labels, options: as in `Client.extract_many`. Raises TypeError if `frame` is no DataFrame, ValueError if `column` is
    missing or has other values than strings, or if the frame already has an added column.
    """
    library = _library(frame)
    schemas = {name: options[name] for name in SCHEMA_COLUMNS if options.get(name)}
    added = [*RESULT_COLUMNS, *schemas, "error"]
    check_columns(frame.columns, [column], added)
    texts = frame[column].to_list()
    if wrong := [text for text in texts if not isinstance(text, str) and not _is_null(text)]:
        raise ValueError(f"column {column!r} must be strings, not {type(wrong[0]).__name__}")
    results = client.extract_many(("" if _is_null(text) else text for text in texts), labels, **options)
    rows = [_row(result, schemas) for result in results]
    return _ADD_COLUMNS[library](frame, {name: [row[name] for row in rows] for name in added}, schemas)


def entity_table(frame: Any) -> Any:
    """A row per entity in the column `entities`, with the entity's fields and `row`, the number of the row in
    `frame` (with pandas, its index label)."""
    library = _library(frame)
    check_columns(frame.columns, ["entities"], ())
    row_ids = frame.index if library == "pandas" else range(len(frame))
    by_row = zip(row_ids, frame["entities"], strict=True)
    rows = [{"row": row_id, **entity} for row_id, entities in by_row for entity in entities]
    columns = ["row", *ENTITIES.columns]
    if library == "pandas":
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(rows, columns=columns)
    import polars as pl  # noqa: PLC0415

    types = [pl.Int64, pl.Int64, pl.Int64, pl.String, pl.String, pl.Float64]
    return pl.DataFrame(rows, schema=dict(zip(columns, types, strict=True)))


def _library(frame: Any) -> str:
    library = type(frame).__module__.partition(".")[0]
    if library not in _ADD_COLUMNS or type(frame).__name__ != "DataFrame":
        raise TypeError(f"frame: must be a DataFrame of pandas or polars, not {type(frame).__name__}")
    return library


def _is_null(value: Any) -> bool:
    """Whether a value is None, or one of pandas' missing values."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def _row(outcome: BatchResult, schemas: Schemas) -> dict[str, Any]:
    error = f"{outcome.error.code}: {outcome.error.message}" if outcome.error else None
    return {**result_columns(outcome.result or Extraction(()), schemas), "error": error}


def _add_to_pandas(frame: Any, columns: Columns, _: Schemas) -> Any:
    import pandas as pd  # noqa: PLC0415

    return frame.assign(**{name: pd.Series(values, frame.index, dtype=object) for name, values in columns.items()})


def _add_to_polars(frame: Any, columns: Columns, schemas: Schemas) -> Any:
    import polars as pl  # noqa: PLC0415

    scalars = {str: pl.String, int: pl.Int64, float: pl.Float64}

    def mapping(of_value: Callable[[Any], Any], asked: Any) -> Any:
        inner = asked if isinstance(asked, Mapping) else dict.fromkeys(asked or ())
        return pl.Struct({name: of_value(value) for name, value in inner.items()})

    hints = get_type_hints(Extraction)
    types = {"error": pl.String} | {
        name: column_type(hints[name], scalars, pl.Struct, pl.List, mapping, schemas.get(name))
        for name in columns
        if name in hints
    }
    return frame.with_columns(
        [pl.Series(name, values, dtype=types[name], strict=False) for name, values in columns.items()]
    )


_ADD_COLUMNS = {"pandas": _add_to_pandas, "polars": _add_to_polars}
