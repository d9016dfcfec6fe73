"""Shows an extraction in a terminal: entities in the text, or in a table. Replaces control characters."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gliner_bento.tasks.extraction import BASIC_PARTS, OPTIONAL_PARTS, Entity, Extraction
from gliner_bento.tasks.labels import ENTITIES
from gliner_bento.tasks.part import Part

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"} | {
    code: 0xFFFD for code in range(0x7F, 0xA0)
}
"""A visible character for each control character, for `str.translate`."""

_PIPE_COLUMNS = 10_000


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave the exit code to the command line: rich's own method ends the process."""
        raise BrokenPipeError


def console() -> Console:
    """The console of standard output. Lines are not wrapped if it is not a terminal."""
    output = _Console(highlight=False, soft_wrap=True)
    if not output.is_terminal:
        output.width = _PIPE_COLUMNS
    return output


def in_text(text: str, result: Extraction) -> Text:
    """The text with its entities in colour, each followed by its label; then the lines of the other parts."""
    shown = Text(text.translate(_VISIBLE))
    for entity in result.entities:
        shown.stylize(f"bold {_color(entity.label)}", entity.start, entity.end)
    by_end: dict[int, list[Entity]] = {}
    for entity in result.entities:
        by_end.setdefault(entity.end, []).append(entity)
    ends = sorted(end for end in by_end if end < len(text))
    joined = Text()
    end = 0
    for piece in shown.divide(ends):
        end += len(piece)
        joined.append_text(piece)
        for entity in by_end.get(end, ()):
            joined.append(f" [{entity.label}]".translate(_VISIBLE), f"dim {_color(entity.label)}")
    for part in _SHOWN_BELOW:
        for line in _LINES.get(part.result, partial(_rows, part))(result):
            joined.append("\n").append_text(line)
    return joined


def tables(result: Extraction) -> Iterator[Table]:
    """The entities, and the other parts that were found."""
    entities = Table(*ENTITIES.columns, box=None, pad_edge=False)
    for entity in result.entities:
        label = Text(_shown(entity.label), _color(entity.label))
        entities.add_row(str(entity.start), str(entity.end), Text(_shown(entity.text)), label, f"{entity.score:.2f}")
    if result.entities or not any(getattr(result, part.result) for part in OPTIONAL_PARTS):
        yield entities
    for part in _SHOWN_BELOW:
        if part.result == "structures":
            yield from _structure_tables(result)
        elif value := getattr(result, part.result):
            yield table(part.columns, [list(row.values()) for row in part.rows(value)])


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table without lines."""
    shown = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*map(_cell, row))
    return shown


def _cell(value: Any) -> Text:
    return Text(f"{value:.2f}" if isinstance(value, float) else _shown(str(value)))


def _structure_tables(result: Extraction) -> Iterator[Table]:
    for name, instances in result.structures.items():
        fields = list(next(iter(instances), {}))
        table = Table(*map(_shown, (name, *fields)), box=None, pad_edge=False)
        for number, instance in enumerate(instances, 1):
            cells = (", ".join(_shown(value.text) for value in instance[field]) for field in fields)
            table.add_row(str(number), *map(Text, cells))
        yield table


def _rows(part: Part, result: Extraction) -> Iterator[Text]:
    """A line for each row of a part that has no form of its own."""
    for row in part.rows(getattr(result, part.result)):
        line = Text(f"{part.result}:")
        for value in row.values():
            line.append(" ").append_text(_cell(value))
        yield line


def _structures(result: Extraction) -> Iterator[Text]:
    """A line for each instance."""
    for name, instances in result.structures.items():
        for instance in instances:
            line = Text(f"{_shown(name)}:")
            for field, values in instance.items():
                for value in values:
                    line.append(f" {_shown(field)} ", "dim").append(_shown(value.text), f"bold {_color(field)}")
                    line.append(f" {value.score:.2f}", "dim")
            yield line


def _relations(result: Extraction) -> Iterator[Text]:
    for relation in result.relations:
        line = f"{_shown(relation.head.text)} --{_shown(relation.relation)}--> {_shown(relation.tail.text)}"
        yield Text(line).append(f" {relation.score:.2f}", "dim")


def _classifications(result: Extraction) -> Iterator[Text]:
    for name, classified in result.classifications.items():
        line = Text(f"{_shown(name)}:")
        for label in classified.labels:
            line.append(f" {_shown(label.label)}", f"bold {_color(label.label)}").append(f" {label.score:.2f}", "dim")
        yield line if classified.labels else line.append(" no label", "dim")


_SHOWN_BELOW = (*BASIC_PARTS[1:], *OPTIONAL_PARTS)
_LINES: dict[str, Callable[[Extraction], Iterator[Text]]] = {
    "relations": _relations,
    "classifications": _classifications,
    "structures": _structures,
}


def _shown(word: str) -> str:
    """`word` in one line, with a visible character for each control character."""
    return " ".join(word.split()).translate(_VISIBLE)


def _color(label: str) -> str:
    return _COLORS[zlib.crc32(label.encode()) % len(_COLORS)]
