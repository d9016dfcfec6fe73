"""Replaces texts in a Word or Excel file: what may be personal data is a passage, or is removed, or is named.

A file with a part of which we do not know what is in it, such as an embedded file or a macro, is not edited.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gliner_bento.documents.base import DocumentError, DocumentTooLarge, Edit, Limits, ListedPassage, Listing, whole
from gliner_bento.documents.cells import cell_passages, formula_passages, header_passages
from gliner_bento.documents.docx import PARTS
from gliner_bento.documents.leftovers import Originals
from gliner_bento.documents.package import Package, local, xml_of
from gliner_bento.documents.passages import ElementText, LinkTarget, Passage, of_attribute, passages_of
from gliner_bento.documents.read import checked_kind, package_of
from gliner_bento.documents.xlsx import Escaped, unescaped, workbook_of

_PERSON = "person"
_ORGANIZATION = "organization"
_PATH = "file path"
_LINK = "link"

_PARAGRAPHS = (
    *("wordprocessingml.document.main", "wordprocessingml.document.glossary", "wordprocessingml.header"),
    *("wordprocessingml.footer", "wordprocessingml.comments", "wordprocessingml.footnotes"),
    *("wordprocessingml.endnotes", "drawingml.diagramData", "drawingml.diagramDrawing", "drawingml.chart+xml"),
    *("spreadsheetml.sharedStrings", "spreadsheetml.worksheet", "spreadsheetml.chartsheet", "spreadsheetml.comments"),
    *("officedocument.drawing+xml", "drawingml.chartshapes"),
)
"""Parts with paragraphs, by a piece of their content type."""
_ANY_TEXT = (
    *("core-properties", "extended-properties", "custom-properties", "customXmlProperties", "threadedcomments"),
    *("ms-excel.person", "wordprocessingml.people", "vmlDrawing", "wordprocessingml.settings", "spreadsheetml.table+"),
    *("spreadsheetml.sheet.main", "relationships+xml", "/xml"),
)
"""Parts of which any text may be personal data, and those of which only attributes may."""
_HARMLESS = (
    *("wordprocessingml.styles", "stylesWithEffects", "wordprocessingml.numbering", "fontTable"),
    *("theme+xml", "themeOverride+xml", "webSettings", "commentsExtended", "commentsIds", "commentsExtensible"),
    *("chartstyle", "chartcolorstyle", "diagramLayout", "diagramStyle", "diagramColors", "obfuscatedFont"),
    *("spreadsheetml.styles", "sheetMetadata", "x-fontdata", "x-font-ttf"),
)
_REMOVED = ("printersettings", "thumbnail", "calcchain")
"""Parts that no reader misses: what they show, or the printer's name, is personal data. In lower case."""
_CONTENT_TYPES = "[Content_Types].xml"

_TEXT_ATTRIBUTES = frozenset({
    *("descr", "description", "title", "alt", "tooltip", "string", "instr", "displayText", "prompt", "promptTitle"),
    *("error", "errorTitle", "display", "totalsRowLabel", "comment", "text", "help", "statusBar"),
    *("docLocation", "href", "lastValue", "invalidUrl", "suggestedsigner2", "signinginstructions"),
})  # fmt: skip
_AUTHORS = frozenset({
    *("author", "initials", "displayName", "userId", "creator", "lastModifiedBy", "Manager"),
    *("userName", "user", "ed", "suggestedsigner", "suggestedsigneremail"),
})  # fmt: skip
_HEADERS = frozenset(f"{pages}{place}" for pages in ("odd", "even", "first") for place in ("Header", "Footer"))
_NAMED = frozenset({"cNvPr", "docPr", "tableColumn", "docVar", "property", "attr", "scenario", "customWorkbookView"})
"""Elements whose attribute `name` is a text."""
_VALUED = frozenset({
    *("alias", "tag", "helpText", "statusText", "default", "docVar", "attr", "tblCaption", "tblDescription", "filter"),
    *("customFilter", "connectString", "query", "udl", "mailSubject", "listEntry", "inputCells"),
})  # fmt: skip
"""Elements whose attribute `val` is a text."""
_OWN_TEXT_ATTRIBUTES = {"name": _NAMED, "val": _VALUED, "value": frozenset({"listItem"})}
"""Attributes that are texts of some elements."""
_IDENTIFIERS = {
    **{("sheet", "name"): "a sheet's name", ("definedName", "name"): "a defined name"},
    **{("table", "name"): "a table's name", ("table", "displayName"): "a table's name"},
    **{("bookmarkStart", "name"): "a bookmark's name", ("hyperlink", "anchor"): "a bookmark's name"},
    **{("hyperlink", "location"): "the place of a link", ("ffData/name", "val"): "the name of a field"},
}
"""Attributes that others refer to, so that they cannot be replaced."""
_OF_THE_FORMAT = frozenset({
    *("ascii", "hAnsi", "cs", "eastAsia", "typeface", "font", "lang", "altLang", "style", "type", "Type", "ObjectType"),
    *("progId", "ProgID", "classid", "algorithmName", "hashValue", "saltValue", "hash", "salt", "password", "gfxdata"),
    *("xpath", "prefixMappings", "uri", "namespaceuri", "element", "schemaLocation", "Ignorable", "Requires"),
    *("providerId", "appName", "formatCode", "presName", "loTypeId", "qsTypeId", "csTypeId", "TargetMode", "Id"),
    *("dataCellStyle", "headerRowCellStyle", "totalsRowCellStyle", "fmla", "eqn", "path", "DrawAspect", "UpdateMode"),
    "wrapcoords",
})  # fmt: skip
"""Attributes whose values are of the format's own vocabulary, or names of fonts and styles."""
_REFERRING = frozenset({
    *("pStyle", "rStyle", "tblStyle", "lang", "rFont", "family", "scheme", "mathFont", "docPart", "compatSetting"),
    *("docPartGallery", "tableStyleInfo", "smartTagType", "defaultTableStyle", "clickAndTypeStyle", "numFmt"),
})  # fmt: skip
"""Elements whose attributes `val` and `name` are such."""
_NAME_LIKE = re.compile(r"(?<![A-Za-z])(?:[A-Z][a-z]|(?=[A-F]*[G-Z])[A-Z]{4,}(?![A-Za-z\d]))|[^\W\d_](?<![A-Za-z])|@")
"""What a name of a person has, and no word of the format: a word that begins with a capital, or has only capitals; a
letter that is not ASCII."""
_DATE = r"(?<![\w.,+/-])(?:\d{1,4}([/-])\d{1,2}\1\d{1,4}|\d{1,2}\.\d{1,2}\.(?:19|20)\d\d)(?![\w/-]|[.,]\d)"
_NUMBER_LIKE = re.compile(
    rf"{_DATE}|(?<![\w.])\+\d|(?<![\w{{.,+-])(?=(?:[) /-]{{0,2}}\d){{7}})\d+(?:[) /-]{{1,2}}\d+)+(?![\w-]|[.,]\d)"
)
"""A date without a time, and a number with the signs of a phone or identity number. Sizes and ids of the format have
none, its times are behind `T`, and its GUIDs in braces."""
_FORMULAS = frozenset({"f", "formula", "formula1", "formula2", "definedName", "calculatedColumnFormula"})
_CONSTANTS = frozenset({
    *("Application", "AppVersion", "DocSecurity", "TotalTime", "created", "modified", "revision"),
    *("lastPrinted", "language", "version", "Anchor"),
})  # fmt: skip
"""Properties and places that the program has written."""
_COPIES = ("{*}Fallback", "{*}rPh", "{*}absPath")
"""Elements that no reader misses: what old programs show, how a text is spoken, and where the file was saved."""
_LETTER = re.compile(rf"[^\W\d_]{{2}}|\d(?:[\W_]*\d){{6}}|{_DATE}")
_LOCAL_PATH = re.compile(r"file:|[A-Za-z]:[\\/]|\\\\")


def listing_of(content: bytes, name: str, limits: Limits) -> Listing:
    """The passages of a Word or Excel file. Raises `DocumentError`."""
    editor = _editor(content, name, limits)
    passages = [ListedPassage(whole(same[0].text), same[0].part, same[0].label) for same in editor.passages]
    if sum(len(passage.text) for passage in passages) > limits.max_chars:
        raise DocumentTooLarge(f"has more than {limits.max_chars:,} characters")
    if len(passages) > limits.max_records:
        raise DocumentTooLarge(f"has more than {limits.max_records:,} texts")
    return Listing(passages, editor.unseen, editor.unsafe)


def edited(content: bytes, name: str, edits: Mapping[int, Sequence[Edit]], limits: Limits) -> bytes:
    """The file with replaced texts. edits: of passages, by their index in `listing_of`.

    Raises `DocumentError` if the file, or one of these passages, cannot be edited, or if a text that was replaced is
    still somewhere in the file.
    """
    editor = _editor(content, name, limits)
    if editor.unsafe:
        raise DocumentError(editor.unsafe)
    originals: set[str] = set()
    for index, of_passage in edits.items():
        for passage in editor.passages[index]:
            if passage.fixed:
                raise DocumentError(f"{passage.fixed} cannot be replaced")
            passage.replace(of_passage)
        originals |= {editor.passages[index][0].text[start:end] for start, end, _ in of_passage}
    return editor.written(originals)


def _editor(content: bytes, name: str, limits: Limits) -> _Editor:
    return _Editor(package_of(content, checked_kind(name, content, limits), limits))


class _Editor:
    """The passages of a file; equal texts are one. unseen: parts that nobody looks at. unsafe: why it is not edited."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._trees: dict[str, Any] = {}
        self._removed: list[str] = []
        self._by_text: dict[tuple[str, str], list[Passage]] = {}
        self.unseen: list[str] = []
        self.unsafe = ""
        self._book: Any = None
        self._linked = {one.target: one.kind for one in package.relationships(package.main)}
        hidden = [passage for name in self._in_order() for passage in self._of_part(name)]
        for passage in hidden:
            self._add(passage)
        self._remove()

    @property
    def passages(self) -> list[list[Passage]]:
        """All passages, those with equal texts together; first those that a reader sees."""
        return [*self._by_text.values()]

    def _in_order(self) -> Iterator[str]:
        """The parts: the main one and those that it links first."""
        first = [
            self._package.main,
            *(name for name, kind in self._linked.items() if kind in (*PARTS, "sharedStrings")),
        ]
        yield from (name for name in first if name in self._package.parts)
        yield from (name for name in self._package.parts if name not in first)

    def _add(self, passage: Passage) -> None:
        if self._package.kind == "xlsx" and passage.part != _LINK:
            passage.pieces = [(unescaped(text), owner and Escaped(owner)) for text, owner in passage.pieces]
        if passage.text.strip():
            self._by_text.setdefault((passage.text, passage.label), []).append(passage)

    def _of_part(self, name: str) -> Iterator[Passage]:
        """Add the passages of a part that a reader sees, and yield the others."""
        kind = self._package.type_of(name)
        if name == _CONTENT_TYPES or _is(kind, _HARMLESS):
            return
        if any(word in name.lower() for word in _REMOVED):
            self._removed.append(name)
        elif kind.startswith("image/"):
            self.unseen.append(name)
        elif _is(kind, (*_PARAGRAPHS, *_ANY_TEXT)):
            root = self._tree(name, kind)
            if root is None:
                return
            for copy in [*root.iter(*_COPIES)]:
                _drop_with_choice(copy)
            for date in root.iter("{*}date"):  # of a form, which has it as a text too
                for attribute in [one for one in date.attrib if one.rpartition("}")[2] == "fullDate"]:
                    del date.attrib[attribute]
            yield from self._of_tree(root, name, kind)
        elif self._package.parts[name]:
            self.unsafe = self.unsafe or f"has a part that cannot be redacted: {name}"

    def _tree(self, name: str, kind: str) -> Any:
        """The root of a part; None for one that cannot be read, and the file is unsafe.

        Raises `DocumentError` if such a part has paragraphs: a copy as text would lack them.
        """
        try:
            self._trees[name] = self._package.tree(name)
        except DocumentError as error:
            if _is(kind, _PARAGRAPHS):
                raise
            self.unsafe = self.unsafe or str(error)
        return self._trees.get(name)

    def _of_tree(self, root: Any, name: str, kind: str) -> Iterator[Passage]:
        if _is(kind, _PARAGRAPHS):
            part = PARTS.get(self._linked.get(name, ""), "body" if name == self._package.main else "text")
            is_cells = _is(kind, ("sharedStrings", "worksheet"))
            part = "cell" if is_cells else part
            for unit in root.iter("{*}si", "{*}is") if is_cells else (root,):
                seen, hidden = passages_of(unit, part)
                for passage in seen:
                    self._add(passage)
                yield from hidden
        if "worksheet" in kind:
            yield from cell_passages(root, self._workbook)
        is_any = _is(kind, _ANY_TEXT) and not _is(kind, ("relationships+xml", "settings", "sheet.main", "table+"))
        for element in root.iter("*"):
            yield from _of_element(element, is_any=is_any, is_data=kind.endswith("/xml"))

    @property
    def _workbook(self) -> Any:
        if self._book is None:
            self._book = workbook_of(self._package)
        return self._book

    def _remove(self) -> None:
        """Take out links to parts that are removed, and what uses these links."""
        for name, root in [*self._trees.items()]:
            if not name.endswith(".rels"):
                continue
            source = name.replace("_rels/", "", 1) if name.startswith("_rels/") else name.replace("/_rels/", "/", 1)
            source = source.removesuffix(".rels")
            gone = {one.id for one in self._package.relationships(source) if one.target in self._removed}
            for node in [*root.iter("{*}Relationship")]:
                if node.get("Id") in gone:
                    _drop(node)
            for element in self._trees[source].iter("{*}pageSetup") if source in self._trees else ():
                for attribute, value in [*element.attrib.items()]:
                    if value in gone and attribute.endswith("}id"):
                        del element.attrib[attribute]

    def written(self, originals: set[str]) -> bytes:
        """The edited file. Raises `DocumentError` if one of `originals` is still in it."""
        parts = {name: xml_of(root) for name, root in self._trees.items()}
        if self._removed:
            types = self._package.tree(_CONTENT_TYPES)
            for node in [*types.iter("{*}Override")]:
                if node.get("PartName", "").lstrip("/") in self._removed:
                    _drop(node)
            parts[_CONTENT_TYPES] = xml_of(types)
        kept = {
            name: content
            for name, content in self._package.parts.items()
            if name not in self._trees and name not in self._removed and name not in self.unseen
        }
        _check(self._trees, kept, Originals(filter(_is_distinct, originals)))
        return self._package.written(parts, self._removed)


def _of_element(element: Any, *, is_any: bool, is_data: bool) -> Iterator[Passage]:
    """The passages of an element's attributes and, if `is_any`, of its text, and the text after it;
    of formulas their literals. is_data: whether the element is of somebody's own format, in which no name has a
    meaning and every value counts."""
    name = local(element)
    if is_data:
        yield from _of_data(element)
        return
    if name in _FORMULAS:
        yield from formula_passages(element)
    elif name in _HEADERS:
        yield from header_passages(element)
    elif is_any or name == "author":  # of comments in Excel
        yield from _of_text(element, name)
    if _is_text(element.tail):
        yield Passage([(element.tail, _Tail(element))], "text")
    for attribute, value in element.attrib.items():
        if _is_text(value):
            yield from _of_attribute(element, name, attribute, value)


def _of_data(element: Any) -> Iterator[Passage]:
    if element.text:
        yield Passage([(element.text, ElementText(element))], "property", _label_of(local(element)))
    if element.tail:
        yield Passage([(element.tail, _Tail(element))], "text")
    for attribute in element.attrib:
        yield of_attribute(element, attribute, label=_label_of(attribute.rpartition("}")[2]))


def _of_text(element: Any, name: str) -> Iterator[Passage]:
    if name not in _CONSTANTS and _is_text(element.text):
        is_variant = "docPropsVTypes}" in element.tag and local(element.getparent()) == "property"
        owner = _Variant(element) if is_variant else ElementText(element)
        yield Passage([(element.text, owner)], "property", _label_of(name))


def _label_of(name: str) -> str:
    return _PERSON if name in _AUTHORS else _ORGANIZATION if name == "Company" else ""


def _of_attribute(element: Any, name: str, attribute: str, value: str) -> Iterator[Passage]:
    short = attribute.rpartition("}")[2]
    if name == "name":  # of an entry of the glossary, of its category, or of a field
        parent = local(element.getparent())
        name = "ffData/name" if parent == "ffData" else "alias"
    if fixed := _IDENTIFIERS.get((name, short)):
        if not value.startswith("_"):  # of Word's own
            yield of_attribute(element, attribute, fixed=fixed)
    elif short in _AUTHORS:
        yield of_attribute(element, attribute, label=_PERSON)
    elif name == "Relationship" and short == "Target" and element.get("TargetMode") == "External":
        yield _link(element)
    elif short in _TEXT_ATTRIBUTES or name in _OWN_TEXT_ATTRIBUTES.get(short, ()):
        yield of_attribute(element, attribute)
    elif (_NAME_LIKE.search(value) or _NUMBER_LIKE.search(value)) and not _is_of_the_format(name, attribute):
        yield of_attribute(element, attribute, fixed=f"the attribute {short} of {name}")


def _is_of_the_format(name: str, attribute: str) -> bool:
    namespace, _, short = attribute.rpartition("}")
    return short in _OF_THE_FORMAT or name in _REFERRING or namespace.endswith("/relationships")


def _is_text(value: str | None) -> bool:
    return bool(value and _LETTER.search(value) and value not in ("true", "false", "True", "False"))


def _link(element: Any) -> Passage:
    owner = LinkTarget(element)
    return Passage([(owner.text, owner)], _LINK, _PATH if _LOCAL_PATH.match(owner.text) else "")


class _Variant:
    """The value of a property, which becomes a text when it is replaced: a date, for example."""

    def __init__(self, element: Any) -> None:
        self._element = element

    def set(self, text: str) -> None:
        """Write a text."""
        self._element.tag = self._element.tag.rpartition("}")[0] + "}lpwstr"
        self._element.text = text


class _Tail:
    """The text after an element."""

    def __init__(self, element: Any) -> None:
        self._element = element

    def set(self, text: str) -> None:
        """Write another text."""
        self._element.tail = text


def _is(kind: str, names: Sequence[str]) -> bool:
    return any(name.lower() in kind.lower() for name in names)


def _drop(element: Any) -> None:
    """Remove an element, and keep the text after it."""
    parent, tail = element.getparent(), element.tail
    if tail and tail.strip():
        before = element.getprevious()
        if before is None:
            parent.text = (parent.text or "") + tail
        else:
            before.tail = (before.tail or "") + tail
    parent.remove(element)


def _drop_with_choice(element: Any) -> None:
    """Remove an element, and the choice between forms that it leaves without any."""
    parent = element.getparent()
    if parent is None:
        return
    _drop(element)
    if local(parent) in ("Choice", "AlternateContent") and not len(parent):
        _drop_with_choice(parent)


def _is_distinct(original: str) -> bool:
    """Whether a text can only be the original: a word such as `Normal` is also the name of a style."""
    return len(original.split()) > 1 or "@" in original or sum(map(str.isdigit, original)) >= 5


def _check(trees: Mapping[str, Any], others: Mapping[str, bytes], originals: Originals) -> None:
    """Raise `DocumentError` if a text or an attribute of a part has one of the originals."""
    for name, texts in _texts_of(trees, others):
        for text in filter(None, texts):
            if originals.is_in(text) or ("_x" in text and originals.is_in(unescaped(text))):
                raise DocumentError(f"{name} still has a text that was to be replaced")


def _texts_of(trees: Mapping[str, Any], others: Mapping[str, bytes]) -> Iterator[tuple[str, Sequence[str | None]]]:
    for name, root in trees.items():
        for element in root.iter("*"):
            yield name, (element.text, element.tail, *element.attrib.values())
    for name, content in others.items():
        yield name, (html.unescape(content.decode("utf-8", "ignore")),)
