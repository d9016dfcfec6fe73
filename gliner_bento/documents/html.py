"""The text of an HTML page that a reader sees: no scripts, styles, comments and hidden elements."""

from __future__ import annotations

import codecs
import re
from typing import Any

from lxml import etree
from lxml import html as lxml_html

from gliner_bento.documents.base import Collector, DocumentError

_UNSEEN = frozenset({
    *("script", "style", "template", "noscript", "noframes", "head", "title", "meta", "link", "iframe", "object"),
    *("embed", "audio", "video", "svg", "math", "canvas", "datalist"),
})  # fmt: skip
_ONE_LINE_END = (
    "address article aside body caption center dd details dialog div dt fieldset figcaption figure footer form header"
    " hr legend li main menu nav option search section select summary tbody tfoot thead tr"
)
_TWO_LINE_ENDS = "blockquote dl h1 h2 h3 h4 h5 h6 ol p pre table ul"
_LINES = {**dict.fromkeys(_ONE_LINE_END.split(), 1), **dict.fromkeys(_TWO_LINE_ENDS.split(), 2)}
"""The line ends before and after an element that has lines of its own."""
_HIDDEN_STYLE = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse))", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f]+")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_MAX_HEAD_BYTES = 4096
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def read_html(content: bytes, collector: Collector, *, encoding: str = "utf-8", attachment: str | None = None) -> None:
    """Add a record for the title, and one for the body. encoding: of a page that does not name its own.

    Raises `DocumentError`.
    """
    title, body = texts_of(decoded(content, encoding))
    if title:
        collector.add(title, "title", attachment=attachment)
    collector.add(body, "body", attachment=attachment)


def decoded(content: bytes, encoding: str) -> str:
    """The page as text: by its byte order mark, its declaration, or `encoding`. Raises `DocumentError`."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            content, encoding = content[len(mark) :], name
            break
    else:
        declared = _CHARSET.search(content[:_MAX_HEAD_BYTES])
        encoding = (declared and _declared(declared[1].decode())) or _known(encoding) or encoding
    try:
        return content.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        raise DocumentError(
            f"not {encoding}; name its encoding (--encoding, or the charset of the Content-Type)"
        ) from None


def _known(name: str) -> str:
    """Python's name of an encoding; empty for an unknown one. Browsers read Latin-1 as Windows-1252."""
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return ""
    return {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(known, known)


def _declared(name: str) -> str:
    """As `_known`, for a declaration in the page: it could be read as ASCII, so the page is not in UTF-16."""
    known = _known(name)
    return "utf-8" if known == "utf-16" else known


def texts_of(page: str) -> tuple[str, str]:
    """Title and text of a page. Raises `DocumentError`."""
    if "\x00" in page:
        raise DocumentError("is no HTML: it has bytes of value 0")
    if not page.strip():
        raise DocumentError("is empty")
    parser = lxml_html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False, remove_pis=True)
    try:
        root = lxml_html.document_fromstring(page.encode("utf-8", "replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        root = None
    faults = {error.type_name for error in parser.error_log}
    if "ERR_NO_MEMORY" in faults:
        raise MemoryError
    if "ERR_RESOURCE_LIMIT" in faults:
        raise DocumentError("is nested too deeply, or has too long a text")
    if root is None:
        raise DocumentError("is no HTML")
    title = root.findtext(".//title") or ""
    return " ".join(title.split()), _Text(root).text


class _Text:
    """Collects the text in the order of the page, without recursion."""

    def __init__(self, root: Any) -> None:
        self._pieces: list[str] = []
        self._in_pre = 0
        self._walk(root)
        lines = "".join(self._pieces).split("\n")
        self.text = "\n".join(line.rstrip(" ") for line in lines).strip("\n")

    def _walk(self, root: Any) -> None:
        skipped = 0  # depth of hidden elements around
        for event, element in etree.iterwalk(root, events=("start", "end", "comment", "pi")):
            if event == "start":
                skipped += _is_hidden(element)
                if not skipped:
                    self._start(element)
            elif event == "end":
                if not skipped:
                    self._end(element)
                skipped -= _is_hidden(element)
            if event != "start" and not skipped and element is not root:
                self._add(element.tail)

    def _start(self, element: Any) -> None:
        tag = element.tag
        if tag in _LINES:
            self._end_line(_LINES[tag])
        elif tag == "br":
            self._pieces.append("\n")
        elif tag in ("td", "th") and element.getprevious() is not None:
            self._pieces.append("\t")
        self._in_pre += tag in ("pre", "textarea")
        self._add(element.text)
        if tag == "input" and element.get("type", "text").lower() != "hidden":
            self._add(element.get("value"))

    def _end(self, element: Any) -> None:
        self._in_pre -= element.tag in ("pre", "textarea")
        if element.tag in _LINES:
            self._end_line(_LINES[element.tag])

    def _end_line(self, line_ends: int) -> None:
        """End the line, and have `line_ends` line ends before the next one, unless nothing is written yet."""
        while self._pieces and self._pieces[-1] == " ":
            self._pieces.pop()
        there = 0
        while there < min(line_ends, len(self._pieces)) and self._pieces[-1 - there] == "\n":
            there += 1
        if self._pieces:
            self._pieces += ["\n"] * (line_ends - there)

    def _add(self, text: str | None) -> None:
        if not text:
            return
        text = text if self._in_pre else _SPACE.sub(" ", text)
        if not self._in_pre and text.startswith(" ") and self._pieces and self._pieces[-1].endswith((" ", "\n", "\t")):
            text = text[1:]
        if text:
            self._pieces.append(text)


def _is_hidden(element: Any) -> bool:
    """Whether a reader does not see an element and what is in it."""
    if not isinstance(element.tag, str):
        return True
    hidden = element.get("hidden")
    style = element.get("style")
    return (
        element.tag in _UNSEEN
        or (hidden is not None and hidden.lower() != "until-found")
        or bool(style and _HIDDEN_STYLE.search(style))
    )
