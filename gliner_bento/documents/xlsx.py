"""Texts of an Excel file: cells with text or a date, comments, texts in drawings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gliner_bento.documents.base import Collector, cut
from gliner_bento.documents.package import Package, local
from gliner_bento.documents.passages import Owner, passages_of

_DATE_FORMATS = frozenset([*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)])
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h|m|s)[^\]]*\]', re.IGNORECASE)
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)
_MAX_SERIAL = 2_958_466  # the year 10000
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_ESCAPED = re.compile("_(?=x[0-9A-Fa-f]{4}_)|[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Workbook:
    """What cells refer to. sheets: name and part of each. strings: the shared strings. dates: for each format of cells,
    whether it shows a date."""

    sheets: Sequence[tuple[str, str]]
    strings: Sequence[str]
    dates: Sequence[bool]
    epoch: datetime


def workbook_of(package: Package) -> Workbook:
    """Raises `DocumentError`."""
    root = package.tree(package.main)
    targets = {link.id: link.target for link in package.relationships(package.main) if link.target in package.parts}
    sheets = []
    for sheet in root.iter("{*}sheet"):
        link = next((value for name, value in sheet.attrib.items() if name.endswith("}id")), "")
        if link in targets:
            sheets.append((cut(sheet.get("name", "")), targets[link]))
    is_1904 = any(node.get("date1904") in ("1", "true") for node in root.iter("{*}workbookPr"))
    tables = map(package.tree, package.linked(package.main, "sharedStrings"))
    strings = [string_of(item) for table in tables for item in table.iterchildren("{*}si")]
    styles = map(package.tree, package.linked(package.main, "styles"))
    dates = [is_date for style in styles for is_date in _date_formats(style)]
    return Workbook(sheets, strings, dates, _EPOCH_1904 if is_1904 else _EPOCH)


def read_xlsx(package: Package, collector: Collector, *, attachment: str | None = None) -> None:
    """Add a record per cell with a text or a date, per comment and drawing. Raises `DocumentError`."""
    book = workbook_of(package)
    for sheet, part in book.sheets:
        for reference, cell in cells_of(package.tree(part)):
            if text := cell_text(cell, book).strip():
                collector.add(text, "cell", sheet=sheet, cell=reference, attachment=attachment)
        for kind in ("comments", "threadedComment"):
            for name in package.linked(part, kind):
                for reference, text in _comments(package.tree(name)):
                    collector.add(text, "comment", sheet=sheet, cell=reference, attachment=attachment)
        for drawing in package.linked(part, "drawing"):
            for passage in passages_of(package.tree(drawing), "drawing")[0]:
                collector.add(passage.text, "drawing", sheet=sheet, attachment=attachment)


def cells_of(sheet: Any) -> Iterator[tuple[str, Any]]:
    """Each cell of a sheet that has a value, with its reference, such as `B2`."""
    row_number = 0
    for row in sheet.iter("{*}row"):
        given = row.get("r", "")
        row_number = int(given) if given.isdecimal() else row_number + 1
        for column, cell in enumerate(row.iter("{*}c"), 1):
            yield cell.get("r") or f"{_letters(column)}{row_number}", cell


def cell_text(cell: Any, book: Workbook) -> str:
    """The text of a cell, its date in ISO's form, or nothing for numbers, truth values and errors."""
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return "".join(string_of(inline) for inline in cell.iterchildren("{*}is"))
    value = cell.findtext("{*}v") or ""
    if kind == "s":
        return book.strings[int(value)] if value.isdecimal() and int(value) < len(book.strings) else ""
    if kind in ("str", "d"):
        return unescaped(value)
    return _date(value, book) if kind == "n" and _is_date(cell, book) else ""


def string_of(item: Any) -> str:
    """The text of a shared or inline string, without its phonetic form."""
    texts = (node.text or "" for node in item.iter("{*}t") if local(node.getparent()) != "rPh")
    return unescaped("".join(texts))


def unescaped(text: str) -> str:
    """A text with the characters that XML lacks: `_x000D_` is a carriage return."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def escaped(text: str) -> str:
    """The opposite of `unescaped`."""
    return _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text)


class Escaped:
    """An owner that keeps its text escaped."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def set(self, text: str) -> None:
        """Write another text, which is not escaped."""
        self._owner.set(escaped(text))


def _comments(root: Any) -> Iterator[tuple[str, str]]:
    for comment in root.iter("{*}comment", "{*}threadedComment"):
        if text := "".join(node.text or "" for node in comment.iter("{*}t", "{*}text")).strip():
            yield comment.get("ref", ""), text


def _date_formats(styles: Any) -> Iterator[bool]:
    own = {node.get("numFmtId"): node.get("formatCode", "") for node in styles.iter("{*}numFmt")}
    for formats in styles.iterchildren("{*}cellXfs"):
        for node in formats.iterchildren("{*}xf"):
            number = node.get("numFmtId", "0")
            code = _LITERAL.sub("", own.get(number, ""))
            yield bool(re.search("[dmyhs]", code, re.IGNORECASE)) or (
                number not in own and number.isdecimal() and int(number) in _DATE_FORMATS
            )


def _is_date(cell: Any, book: Workbook) -> bool:
    style = cell.get("s", "0")
    return style.isdecimal() and int(style) < len(book.dates) and book.dates[int(style)]


def _date(value: str, book: Workbook) -> str:
    try:
        serial = float(value)
    except ValueError:
        return ""
    if not 0 <= serial < _MAX_SERIAL:
        return ""
    days = serial + 1 if book.epoch is _EPOCH and serial < 60 else serial  # Lotus had a 29 February 1900
    moment = book.epoch + timedelta(seconds=round(days * 86_400))
    if serial < 1:
        return moment.strftime("%H:%M:%S")
    return f"{moment:%Y-%m-%d}" if serial.is_integer() else f"{moment:%Y-%m-%d %H:%M:%S}"


def _letters(column: int) -> str:
    letters = ""
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters
