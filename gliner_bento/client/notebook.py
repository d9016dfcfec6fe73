"""Answers of `extract` and `extract_batch` as HTML, for notebooks, and as pandas tables."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from gliner_bento.errors import install_hint
from gliner_bento.tasks.classifications import ClassificationResult
from gliner_bento.tasks.extraction import (
    BASIC_PARTS,
    OPTIONAL_PARTS,
    BatchResult,
    Entity,
    ExtractBatchResponse,
    Extraction,
    ExtractResponse,
    Relation,
)
from gliner_bento.tasks.part import Part, Row
from gliner_bento.tasks.structures import FieldValue, Instance

_COLORS = ("#fde68a", "#bfdbfe", "#bbf7d0", "#fbcfe8", "#ddd6fe", "#fed7aa", "#a5f3fc", "#e5e7eb")
_PARTS = {part.result: part for part in (*BASIC_PARTS, *OPTIONAL_PARTS)}


class ExtractAnswer(ExtractResponse):
    """An `ExtractResponse` that notebooks show as HTML, with the request's text."""

    __slots__ = ("_text",)
    _text: str

    def with_text(self, text: str) -> ExtractAnswer:
        """Keep the request's text in this answer, and return it."""
        self._text = text
        return self

    def _repr_html_(self) -> str | None:
        return _html(self._text, self) if hasattr(self, "_text") else None

    def to_pandas(self, rows: str = "entities") -> Any:
        """A DataFrame with a row per entity, relation, label of a classification, or value of a structure's instance.
        Raises ImportError without pandas."""
        part = _part(rows)
        return _data_frame(list(part.rows(getattr(self, rows))), part.columns)


class ExtractBatchAnswer(ExtractBatchResponse):
    """An `ExtractBatchResponse` that notebooks show with its texts; see `ExtractAnswer`."""

    __slots__ = ("_texts",)
    _texts: Sequence[str]

    def with_texts(self, texts: Sequence[str]) -> ExtractBatchAnswer:
        """Keep the request's texts in this answer, and return it."""
        self._texts = texts
        return self

    def _repr_html_(self) -> str | None:
        if not hasattr(self, "_texts"):
            return None
        return "<hr>".join(_item_html(text, item) for text, item in zip(self._texts, self.results, strict=True))

    def to_pandas(self, rows: str = "entities") -> Any:
        """As `ExtractAnswer.to_pandas`, with the text's index in the column `item`. A text that failed has one row with
        its `error`."""
        part = _part(rows)
        records = [
            {"item": index, **row}
            for index, item in enumerate(self.results)
            for row in (part.rows(getattr(item.result, rows)) if item.result else [{"error": _message(item)}])
        ]
        return _data_frame(records, ["item", *part.columns, "error"])


def _part(rows: str) -> Part:
    if rows not in _PARTS:
        raise ValueError(f"rows: must be {', '.join(_PARTS)}, not {rows!r}")
    return _PARTS[rows]


def _data_frame(records: Sequence[Row], columns: Sequence[str]) -> Any:
    try:
        import pandas  # noqa: PLC0415  # an extra
    except ImportError:
        raise ImportError(f"to_pandas needs pandas; {install_hint('dataframes')}") from None
    return pandas.DataFrame(records, columns=list(columns))


def _item_html(text: str, item: BatchResult) -> str:
    return _html(text, item.result) if item.result else f"<div>{escape(_message(item))}</div>"


def _message(item: BatchResult) -> str:
    return item.error.message if item.error else ""


def _html(text: str, result: Extraction) -> str:
    """The text with its entities in color, each followed by its label; below it, one line for each relation,
    classification, instance of a structure, and warning."""
    lines = [line for name in _PARTS for line in _LINES.get(name, _rows)(getattr(result, name), name)]
    lines += [f"Warning: {warning.message}" for warning in result.warnings]
    if result.truncated:
        lines.append(f"Only the first {result.truncated_at} characters were processed.")
    below = "".join(f"<div>{escape(line)}</div>" for line in lines)
    marked = "".join(_pieces(text, result.entities))
    return f'<div style="white-space: pre-wrap; line-height: 1.8">{marked}</div>{below}'


def _relations(relations: Sequence[Relation], _: str) -> Iterator[str]:
    for each in relations:
        yield f"{each.head.text} → {each.relation} → {each.tail.text} ({each.score:.2f})"


def _classifications(results: Mapping[str, ClassificationResult], _: str) -> Iterator[str]:
    for name, result in results.items():
        yield f"{name}: {', '.join(f'{label.label} ({label.score:.2f})' for label in result.labels) or 'no label'}"


def _structures(structures: Mapping[str, Sequence[Instance]], _: str) -> Iterator[str]:
    for name, instances in structures.items():
        for instance in instances:
            yield f"{name}: {'; '.join(f'{field}: {_values(values)}' for field, values in instance.items() if values)}"


def _rows(value: Any, name: str) -> Iterator[str]:
    """A line for each row of a part that has no form of its own."""
    for row in _PARTS[name].rows(value):
        yield f"{name}: {', '.join(str(cell) for cell in row.values())}"


_LINES: dict[str, Callable[[Any, str], Iterable[str]]] = {
    "entities": lambda *_: (),  # in the text
    "relations": _relations,
    "classifications": _classifications,
    "structures": _structures,
}


def _values(values: Sequence[FieldValue]) -> str:
    return ", ".join(f"{value.text} ({value.score:.2f})" for value in values)


def _pieces(text: str, entities: Sequence[Entity]) -> Iterator[str]:
    """The text as HTML, cut where an entity begins or ends; a piece has the color of the shortest entity around it."""
    upcoming = sorted(entities, key=lambda entity: -entity.start)  # the next entity is the last element
    around: list[Entity] = []
    cuts = {0, len(text), *(edge for entity in entities for edge in (entity.start, entity.end))}
    for start, end in pairwise(sorted(cuts)):
        while upcoming and upcoming[-1].start == start:
            around.append(upcoming.pop())
        around = [entity for entity in around if entity.end > start]
        around.sort(key=lambda entity: entity.end - entity.start)
        shown = escape(text[start:end])
        if around:
            labels = "".join(f" <small>{escape(entity.label)}</small>" for entity in around if entity.end == end)
            color = _COLORS[zlib.crc32(around[0].label.encode()) % len(_COLORS)]
            shown = f'<mark style="background: {color}; color: #111; padding: 1px 3px">{shown}{labels}</mark>'
        yield shown
