"""Names in tables within a text, as CSV, with tabs or in Markdown, whose header says which columns have names. Models
read a cell without its header, and miss rare surnames that are alone in one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

from gliner_bento.privacy.announced_names import COLUMN, FIELD_PARTS, FIELDS, NO_NAMES
from gliner_bento.privacy.name_words import has_role
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.6
_SEPARATORS = (",", ";", "\t", "|")
_MAX_HEADER_CHARS, _MAX_NAME_CHARS, _MAX_NAME_WORDS = 1000, 60, 5
_NAME_COLUMN = re.compile(rf"(?:{FIELDS})", re.IGNORECASE)
_IN_HEADER = re.compile(
    rf"(?:\A|(?<=[,;\t|]))[\s\"'`*_]{{0,4}}(?:{FIELDS})[\s\"'`*_]{{0,4}}(?:[,;\t|]|\Z)", re.IGNORECASE
)
"""Most lines have none."""
_OF_ANYTHING = re.compile("names?|nom|nombre|nome|naam|namn|navn|nimi|名前", re.IGNORECASE)
"""A column that products have, too: beside it, another one must be of persons."""
_OF_PERSONS = re.compile(
    r"(?:sur|first|last|given|family|full)[ _-]?name|e-?mail|phone|mobile|telefon|dob|birth|geburt|naiss|nacim|gender|"
    r"ssn|passport|iban|salary|employee|patient|vorname|nachname|prénom|apellido|cognome|(?<![^\W_])(?:sex|age|tel)(?![^\W_])",
    re.IGNORECASE,
)
_RULE = re.compile(r"[\s|:+-]+")
"""The line below the header of a table in Markdown."""
_BESIDE = " \t\r\"'`*_"


def names_in_columns(clues: Clues) -> Iterator[LabeledSpan]:
    """The names in the tables of a text. In linear time."""
    text = clues.text
    if "\n" not in text or not clues.has_part(FIELD_PARTS):
        return
    separator, width, columns = "", 0, frozenset[int]()
    rows: list[list[tuple[int, int]]] = []
    for line in re.finditer("[^\n]+|(?<=\n)(?=\n)", text):
        cells = _cells(line[0], separator) if columns else []
        if columns and len(cells) == width:
            if not _RULE.fullmatch(line[0]):
                rows.append(
                    [(line.start() + start, line.start() + end) for start, end in map(cells.__getitem__, columns)]
                )
        else:
            yield from _names(text, rows, only_names=len(columns) == width)
            rows = []
            separator, width, columns = _header(line[0])
    yield from _names(text, rows, only_names=len(columns) == width)


def _header(line: str) -> tuple[str, int, frozenset[int]]:
    """The separator of a header, the number of its cells, and the columns of names; without any, it is no header. A
    second title must be one that we know."""
    if len(line) <= _MAX_HEADER_CHARS and _IN_HEADER.search(line):
        for separator in _SEPARATORS:
            titles = [line[start:end].strip(_BESIDE) for start, end in _cells(line, separator)]
            columns = [index for index, title in enumerate(titles) if _NAME_COLUMN.fullmatch(title)]
            if not _OF_PERSONS.search(line):
                columns = [index for index in columns if not _OF_ANYTHING.fullmatch(titles[index])]
            if columns and sum(map(_is_title, titles)) > 1:
                return separator, len(titles), frozenset(columns)
    return "", 0, frozenset()


def _is_title(cell: str) -> bool:
    """Whether a cell is one of a header. In `Name | Ada`, the second is none: it is a row of a form."""
    return any((_NAME_COLUMN.fullmatch(cell), COLUMN.fullmatch(cell), _OF_PERSONS.search(cell)))


@cache
def _cell(separator: str) -> re.Pattern[str]:
    """A cell, which may be in quotation marks, and what is behind it."""
    sign = re.escape(separator)
    return re.compile(rf'(?P<cell>[ ]?"(?:[^"]|"")*"[ ]?(?={sign}|\r?\Z)|[^{sign}]*)(?:{sign}|\Z)')


def _cells(line: str, separator: str) -> list[tuple[int, int]]:
    """[start, end) of each cell of a line."""
    cells = [match.span("cell") for match in _cell(separator).finditer(line)]
    if line and not line.endswith(separator):
        cells.pop()  # the pattern also matches the end of the line
    return cells


def _names(text: str, rows: Sequence[Sequence[tuple[int, int]]], *, only_names: bool) -> Iterator[LabeledSpan]:
    """The names in the cells of rows. only_names: whether the rows have no other cells. If one of these has a digit,
    it is a form with titles above values: `Surname, First name`, `Ng, Ada`, `Class, 2`. The first row has the names."""
    is_form = only_names and any(char.isdigit() for row in rows for start, end in row for char in text[start:end])
    for start, end in chain.from_iterable(rows[:1] if is_form else rows):
        name = text[start:end].strip(_BESIDE)
        is_name = any(map(str.isalpha, name)) and not any(map(str.isdigit, name)) and not has_role(name)
        if is_name and not NO_NAMES.fullmatch(name) and not COLUMN.fullmatch(name) and _is_short(name):
            first = text.index(name, start)
            yield LabeledSpan(first, first + len(name), "person", by_recognizer=True, score=_SCORE)


def _is_short(name: str) -> bool:
    return len(name) <= _MAX_NAME_CHARS and len(name.split()) <= _MAX_NAME_WORDS
