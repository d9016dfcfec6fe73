"""Cells and formulas of an Excel file as passages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from lxml import etree

from gliner_bento.documents.passages import ElementText, Passage
from gliner_bento.documents.xlsx import Workbook, cell_text, cells_of, escaped

_LITERAL = re.compile(r'"((?:[^"]|"")*)"')
_CODE = re.compile(r"""(&(?:"[^"]*"|K[0-9A-Fa-f+-]{1,6}|\d+|.))""", re.DOTALL)
_LONG_NUMBER = re.compile(r"\d{7,}")
_SHARED = "a formula of several cells"


class _Value:
    """The value of a cell, which becomes a text when it is replaced; its formula is removed."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def set(self, text: str) -> None:
        """Write a text in the cell."""
        namespace = self._cell.tag.rpartition("}")[0] + "}"
        for child in [*self._cell]:
            self._cell.remove(child)
        self._cell.set("t", "inlineStr")
        inline = etree.SubElement(self._cell, f"{namespace}is")
        ElementText(etree.SubElement(inline, f"{namespace}t")).set(text)


def cell_passages(sheet: Any, book: Workbook) -> Iterator[Passage]:
    """The values of a sheet's cells that are not shared strings: results of formulas, dates, numbers of many digits."""
    for _, cell in cells_of(sheet):
        kind = cell.get("t", "n")
        if kind in ("str", "d", "n"):
            value = cell.findtext("{*}v") or ""
            number = _LONG_NUMBER.search(value.partition("E")[0].replace(".", "")) if kind == "n" else None
            if text := cell_text(cell, book) or (_plain(value) if number else ""):
                formula = next(cell.iterchildren("{*}f"), None)
                is_shared = formula is not None and formula.get("t", "normal") != "normal"
                yield Passage([(escaped(text), _Value(cell))], "cell", fixed=_SHARED if is_shared else "")


def _plain(value: str) -> str:
    """A number without an exponent: `4.111E+15` as Excel shows it in a wide cell."""
    try:
        number = float(value)
    except ValueError:
        return value
    return str(int(number)) if number.is_integer() and abs(number) < 1e22 else value


class _Divided:
    """A text of which only some pieces are texts: those at odd indices."""

    def __init__(self, element: Any, pieces: list[str]) -> None:
        self._element, self._pieces = element, pieces

    def passages(self, part: str) -> Iterator[Passage]:
        """Each text as a passage."""
        for index in range(1, len(self._pieces), 2):
            if self._pieces[index].strip():
                yield Passage([(self._pieces[index], _Piece(self, index))], part)

    def write(self, index: int, text: str) -> None:
        """Write another text."""
        self._pieces[index] = text
        self._element.text = self._joined(self._pieces)

    def _joined(self, pieces: Sequence[str]) -> str:
        return "".join(pieces)


class _Formula(_Divided):
    """The texts are literals, without their quotes."""

    def __init__(self, element: Any) -> None:
        pieces = _LITERAL.split(element.text or "")
        super().__init__(element, [piece.replace('""', '"') if at % 2 else piece for at, piece in enumerate(pieces)])

    def _joined(self, pieces: Sequence[str]) -> str:
        doubled = (piece.replace('"', '""') for piece in pieces)
        return "".join(f'"{text}"' if at % 2 else pieces[at] for at, text in enumerate(doubled))


class _Piece:
    def __init__(self, divided: _Divided, index: int) -> None:
        self._divided, self._index = divided, index

    def set(self, text: str) -> None:
        """Write another text."""
        self._divided.write(self._index, text)


def formula_passages(element: Any) -> Iterator[Passage]:
    """The literals of a formula, or of a list of allowed values (`"Ada,Bob"`)."""
    return _Formula(element).passages("formula")


def header_passages(element: Any) -> Iterator[Passage]:
    """The texts of a page's header or footer, without its codes: `&L` begins the left part."""
    codes = [*_CODE.split(element.text or "")]  # at odd indices: codes
    return _Divided(element, ["", *codes]).passages("header")
