"""A part of an extraction, such as its relations: what one module declares, so that no other has to know the part.

`extraction.py`, which lists the parts, imports their modules, so options and items are `Any` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gliner_bento.tasks.base import Limits, ResultMerger

Row = Mapping[str, Any]
Decided = Mapping[str, Any]
"""Fields of an item, by name."""


class Windows(Protocol):
    """The values of a part in an item's windows, which may be added in any order."""

    def add(self, window: int, value: Any) -> None:
        """Add what a pass over window number `window` found; empty for a pass without the part."""

    def results(self, asked: Any) -> Any:
        """The part's value in the result. asked: the item's field."""


def _none(_: Any) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. `extraction.py` lists all of them, and declares their fields in options, items and results.

    option: its field in a request and in an item. result: its field in a result; empty if it adds to another part.
    ability: what a model must be able to do (`ModelInfo.tasks`); None if the part needs no model.
    decide: the fields of an item, from the options of a request and the fields of earlier parts. Raises InvalidField.
    names: how many names the item's field has; they count for `max_labels`. chars: how many characters of it the model
    reads.
    blank: the value of the result of a text without words, from the item's field.
    windows: merges the values of a long text's windows; None: the engine does.
    merger: makes the merger of an item; its second argument is `Request.all_found`. Raises errors of the item. None:
    nothing is added to the model's result.
    columns, rows: a table of the result's field: the names of its columns, and a row per element.
    """

    option: str
    result: str = ""
    ability: str | None = None
    decide: Callable[[Any, Limits, Decided], Decided]
    names: Callable[[Any], int] = lambda _: 0
    chars: Callable[[Any], int] = lambda _: 0
    blank: Callable[[Any], Any] = _none
    windows: Callable[[], Windows] | None = None
    merger: Callable[[Any, bool], ResultMerger] | None = None
    columns: Sequence[str] = ()
    rows: Callable[[Any], Iterable[Row]] = _none


class Mergers:
    """Several mergers as one `ResultMerger`, in their order."""

    def __init__(self, mergers: Sequence[ResultMerger]) -> None:
        self._mergers = mergers

    def add(self, parts: Iterable[Any]) -> Sequence[Any]:
        for merger in self._mergers:
            parts = merger.add(parts)
        return list(parts)

    def whole(self, result: Any) -> Any:
        for merger in self._mergers:
            result = merger.whole(result)
        return result
