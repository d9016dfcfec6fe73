"""The texts in JSON values: visited and replaced in place, so that the JSON stays valid; and spans of a text that is
JSON, inside its values.

A `Change` gets a text and the name of its field, or None for prose, and returns what replaces it. It is called for the
same texts in the same order in each visit of a value.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from gliner_bento.errors import InvalidField
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.surrogates import without_escaped_surrogates

Change = Callable[[str, str | None], str]
Keeps = Callable[[str, Any], bool]
"""Whether the value of a field is not visited: gets its name and the value."""

_MAX_DEPTH = 50
_MIN_NUMBER_CHARS = 6
"""Shorter numbers are amounts, not card or phone numbers."""
_PARAMETER = re.compile(r"[A-Za-z_$][\w.$-]*")
_SCALAR = re.compile(r'"(?P<string>(?:[^"\\]|\\.)*)"(?P<names>\s*:)?|-?(?:\d[\d.eE+-]*|[A-Za-z]+)', re.DOTALL)
"""A string, also one that names a field, a number or a word such as `true`, in text that is JSON."""
_BLANKS = re.compile(r"(?:\\[nrtbf])*")
_BLANK = {r"\n": " \n", r"\r": "  ", r"\t": "  ", r"\b": "  ", r"\f": "  "}
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")


def changed(value: Any, change: Change, keeps: Keeps = lambda _name, _value: False, name: str = "") -> Any:
    """A JSON value with its strings changed, and its longer numbers, which become strings, and those of its fields'
    names that are not single words. Raises `InvalidField` for a deeply nested value, and for two fields of an object
    whose names become the same."""
    return _changed(value, change, keeps, name, 0)


def changed_json(text: str, change: Change) -> str:
    """As `changed`, for JSON in a text; a text that is not JSON, or not clearly, is changed as prose. The text itself
    if nothing changes."""
    try:
        readable = without_escaped_surrogates(text.encode("utf-8", "surrogatepass"))
        value = json.loads(readable, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return change(text, None)
    new = changed(value, change)
    return text if new == value else json.dumps(new, ensure_ascii=False)


def is_json(text: str) -> bool:
    """Whether a whole text is an object or a list of JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def with_blanks(text: str) -> str:
    """A text of the same length; if it is JSON, with white space in place of the escapes of line ends and tabs, whose
    letter would be the first one of the word behind them."""
    if "\\" not in text or not is_json(text):
        return text
    return _ESCAPE.sub(lambda escape: _BLANK.get(escape[0], escape[0]), text)


class JsonScalars:
    """The strings, numbers and words of a text that is JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._matches = [*_SCALAR.finditer(text)]
        self._starts = [match.start() for match in self._matches]
        self._ends = [match.end() for match in self._matches]
        self._escapes = [match.span() for match in _ESCAPE.finditer(text)]

    def inside(self, spans: Iterable[LabeledSpan]) -> list[LabeledSpan]:
        """The parts of spans that are inside values, so that the JSON stays valid when they are replaced: a number as
        a whole, an escape as a whole. Of a span over several values, `true` and names of fields that are words stay."""
        return [part for span in spans for part in self._parts(span)]

    def is_bare(self, span: LabeledSpan) -> bool:
        """Whether a part is a number or a word: what replaces it needs quotation marks."""
        index = bisect_left(self._starts, span.start)
        return index < len(self._starts) and self._starts[index] == span.start

    def value(self, span: LabeledSpan) -> str:
        """What a part stands for, without escapes."""
        raw = self._text[span.start : span.end]
        return raw if "\\" not in raw else json.loads(f'"{raw}"', strict=False)

    def _escape_at(self, index: int) -> tuple[int, int]:
        """Start and end of the escape that is divided at an index; the index twice if none is."""
        last = bisect_left(self._escapes, index, key=itemgetter(0)) - 1
        is_divided = last >= 0 and index < self._escapes[last][1]
        return self._escapes[last] if is_divided else (index, index)

    def _trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Start and end without line ends and tabs that are escapes: a recognizer reads the `n` of one as a letter."""
        start = _BLANKS.match(self._text, start, end).end()  # type: ignore[union-attr]  # it also matches nothing
        while end > start and (escape := self._escape_at(end - 1))[1] == end and self._text[end - 1] in "nrtbf":
            end = escape[0]
        return start, end

    def _parts(self, span: LabeledSpan) -> Iterable[LabeledSpan]:
        matches = self._matches[bisect_right(self._ends, span.start) : bisect_left(self._starts, span.end)]
        for match in matches:
            if match["string"] is None:
                start, end = match.span()
                is_word = match[0].isalpha()
            else:
                start, end = max(span.start, match.start("string")), min(span.end, match.end("string"))
                start, end = self._trimmed(self._escape_at(start)[0], self._escape_at(end)[1])
                is_word = match["names"] is not None and _PARAMETER.fullmatch(match["string"]) is not None
            if any(map(str.isalnum, self._text[start:end])) and not (is_word and len(matches) > 1):
                yield span.at(start, end)


def _changed(value: Any, change: Change, keeps: Keeps, name: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidField(f"JSON that is nested more than {_MAX_DEPTH} levels deep cannot be redacted")
    if keeps(name, value):
        return value
    if isinstance(value, str):
        return change(value, name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        written = json.dumps(value)
        new = change(written, name) if len(written) >= _MIN_NUMBER_CHARS else written
        return value if new == written else new
    if isinstance(value, list):
        return [_changed(one, change, keeps, name, depth + 1) for one in value]
    if isinstance(value, dict):
        new_fields = {
            key if _PARAMETER.fullmatch(key) else change(key, ""): _changed(one, change, keeps, key, depth + 1)
            for key, one in value.items()
        }
        if len(new_fields) < len(value):
            raise InvalidField("JSON: the names of two fields are replaced by the same text")
        return new_fields
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Raises ValueError for one with two fields of a name: one of them would not be visited."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("two fields have the same name")
    return fields
