"""Texts in XML that can be replaced: a passage is a text whose characters are in several elements and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lxml import etree

from gliner_bento.documents.base import Edit
from gliner_bento.documents.package import local

_TEXTS = frozenset({"t", "delText", "instrText", "delInstrText"})
_CHART_TEXTS = frozenset({("v", "pt"), ("v", "tx"), ("name", "trendline")})
"""Texts of charts: an element, and the one around it."""
_PARAGRAPHS = frozenset({"p", "si", "is", "pt", "tx", "trendline"})
_UNITS = frozenset({"comment", "footnote", "endnote"})
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_HIDDEN = {"del": "deleted", "moveFrom": "deleted", "Fallback": "fallback", "rPh": "phonetic"}
_XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


class Owner(Protocol):
    """Where a piece of text is."""

    def set(self, text: str) -> None:
        """Write another text."""


@dataclass(slots=True)
class ElementText:
    """The text of an element."""

    element: Any

    def set(self, text: str) -> None:
        """Write another text; white space at its ends is kept."""
        self.element.text = text
        if text != text.strip() and local(self.element) in ("t", "delText", "instrText"):
            self.element.set(_XML_SPACE, "preserve")


@dataclass(slots=True)
class AttributeText:
    """The value of an attribute."""

    element: Any
    name: str

    def set(self, text: str) -> None:
        """Write another value."""
        self.element.set(self.name, text)


class LinkTarget:
    """The address of a link. Brackets are not allowed in it, and written as `%5B` and `%5D`."""

    def __init__(self, element: Any) -> None:
        self._element = element

    @property
    def text(self) -> str:
        """The address with brackets."""
        target: str = self._element.get("Target", "")
        return target.replace("%5B", "[").replace("%5D", "]")

    def set(self, text: str) -> None:
        """Write another address."""
        self._element.set("Target", text.replace("[", "%5B").replace("]", "%5D").replace(" ", "%20"))


@dataclass(slots=True)
class Passage:
    """A text. pieces: in order, each with its owner; None for a separator, which stays.

    part: see `DocumentRecord.part`. label: of a text that is personal data whatever it says, such as an author's name.
    fixed: why it cannot be replaced; empty if it can.
    """

    pieces: list[tuple[str, Owner | None]] = field(default_factory=list)
    part: str = ""
    label: str = ""
    fixed: str = ""

    @property
    def text(self) -> str:
        """All pieces."""
        return "".join(text for text, _ in self.pieces)

    def replace(self, edits: Sequence[Edit]) -> None:
        """Replace characters. The first piece of each edit that has an owner gets its replacement. edits: in order."""
        position = begin = 0
        pending = list(edits)
        for text, owner in self.pieces:
            end = position + len(text)
            while begin < len(pending) and pending[begin][1] <= position:
                begin += 1
            if owner is not None and begin < len(pending) and pending[begin][0] < end:
                owner.set(self._edited(text, position, pending, begin))
            position = end

    def _edited(self, text: str, position: int, pending: list[Edit], begin: int) -> str:
        """A piece at `position` after the edits from `begin` on. One that is written becomes empty in `pending`."""
        written, at = [], 0
        for index in range(begin, len(pending)):
            start, stop, replacement = pending[index]
            first, last = max(start - position, 0), min(stop - position, len(text))
            if first >= last:
                break
            written += [text[at:first], replacement]
            at = last
            pending[index] = (start, stop, "")
        return "".join([*written, text[at:]])


def of_attribute(element: Any, name: str, *, label: str = "", fixed: str = "") -> Passage:
    """The value of an attribute as a passage."""
    return Passage([(element.get(name), AttributeText(element, name))], "attribute", label, fixed)


@dataclass(slots=True)
class _Paragraph:
    """The pieces of a paragraph by group: "", what a reader sees, or a value of `_HIDDEN`. row, cell: of its table."""

    row: Any = None
    cell: Any = None
    groups: dict[str, list[tuple[str, Owner | None]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Unit:
    paragraphs: list[_Paragraph] = field(default_factory=list)


def passages_of(root: Any, part: str) -> tuple[list[Passage], list[Passage]]:
    """The passages of a part's paragraphs that a reader sees, one for the part or one per comment or note; and the
    others: deleted texts, instructions of fields, copies for old programs.

    A name that is split over runs is in one passage, and so is what is on both sides of a text box.
    """
    walker = _Walker()
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if event == "start":
            walker.start(element)
        else:
            walker.end(element)
    seen = [Passage(list(_joined(unit.paragraphs)), part) for unit in walker.units]
    hidden = [
        Passage(pieces, group)
        for unit in walker.units
        for paragraph in unit.paragraphs
        for group, pieces in paragraph.groups.items()
        if group
    ]
    return [passage for passage in seen if passage.text.strip()], [one for one in hidden if one.text.strip()]


def _joined(paragraphs: Iterable[_Paragraph]) -> Iterator[tuple[str, Owner | None]]:
    """Paragraphs with an empty line between them, rows of tables with a line end, cells with a tab."""
    before: _Paragraph | None = None
    for paragraph in paragraphs:
        if not (pieces := paragraph.groups.get("")):
            continue
        if before is not None:
            yield _separator(before, paragraph), None
        yield from pieces
        before = paragraph


def _separator(before: _Paragraph, after: _Paragraph) -> str:
    if after.row is None or before.row is None:
        return "\n\n"
    if before.row is not after.row:
        return "\n"
    return "\n" if before.cell is after.cell else "\t"


class _Walker:
    """Collects pieces. A stack has the paragraphs around an element: a text box is inside a paragraph."""

    def __init__(self) -> None:
        self.units = [_Unit()]
        self._paragraphs = [_Paragraph()]
        self._rows: list[Any] = [None]
        self._cells: list[Any] = [None]
        self._groups = [""]
        self.units[0].paragraphs.append(self._paragraphs[0])

    def start(self, element: Any) -> None:
        """Called for each element before what is in it."""
        name = local(element)
        if name in _UNITS:
            self.units.append(_Unit())
        if name in _UNITS or name in _PARAGRAPHS:
            self._paragraphs.append(_Paragraph(self._rows[-1], self._cells[-1]))
            self.units[-1].paragraphs.append(self._paragraphs[-1])
        elif name == "tr":
            self._rows.append(element)
        elif name == "tc":
            self._cells.append(element)
        elif name in _HIDDEN:
            self._groups.append(self._groups[-1] or _HIDDEN[name])
        elif name in _TEXTS or (name, local(element.getparent())) in _CHART_TEXTS:
            if element.text:
                self._add(_group_of(name) or self._groups[-1], element.text, ElementText(element))
        elif name in _BREAKS and local(element.getparent()) in ("r", "p"):
            self._add(self._groups[-1], _BREAKS[name], None)

    def end(self, element: Any) -> None:
        """Called for each element after what is in it."""
        name = local(element)
        if name in _UNITS:
            self.units.append(_Unit())
        if name in _UNITS or name in _PARAGRAPHS:
            self._paragraphs.pop()
        elif name == "tr":
            self._rows.pop()
        elif name == "tc":
            self._cells.pop()
        elif name in _HIDDEN:
            self._groups.pop()

    def _add(self, group: str, text: str, owner: Owner | None) -> None:
        self._paragraphs[-1].groups.setdefault(group, []).append((text, owner))


def _group_of(name: str) -> str:
    if name == "delText":
        return "deleted"
    return "" if name == "t" else "instruction"
