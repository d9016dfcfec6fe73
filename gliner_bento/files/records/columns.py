"""The columns that an extraction adds to a record: values and Arrow types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from gliner_bento.errors import StartupError, install
from gliner_bento.tasks.extraction import Extraction

Row = dict[str, Any]

RESULT_COLUMNS = ("entities", "relations")


def result_columns(result: Extraction) -> Row:
    """The values of `RESULT_COLUMNS`."""
    return {
        "entities": [asdict(one) for one in result.entities],
        "relations": [asdict(one) for one in result.relations],
    }


def check_columns(columns: Iterable[str], needed: Iterable[str], added: Iterable[str] = RESULT_COLUMNS) -> None:
    """Raise `ValueError` for a missing column, and for one in the input that the output would add."""
    present = list(columns)
    for name in needed:
        if name not in present:
            raise ValueError(f"no column {name!r}, but {', '.join(map(str, present))}")
    if clashing := [name for name in added if name in present]:
        raise ValueError(f"a column of the output is in the input: {', '.join(clashing)}")


def arrow_types() -> dict[str, Any]:
    """The types of `RESULT_COLUMNS`."""
    pa = pyarrow()
    span = [("start", pa.int64()), ("end", pa.int64()), ("text", pa.string()), ("label", pa.string())]
    score = ("score", pa.float64())
    argument = pa.struct([("entity_idx", pa.int64()), *span])
    relation = pa.struct([("relation", pa.string()), score, ("head", argument), ("tail", argument)])
    return {"entities": pa.list_(pa.struct([*span, score])), "relations": pa.list_(relation)}


def pyarrow() -> Any:
    """The package. Raises `StartupError` if it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415  # an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise StartupError(f"Parquet needs pyarrow; {install('bulk')}") from None
    return pyarrow
