"""The texts in JSON values: visited and replaced in place, so that the JSON stays valid; how a text that is JSON is
read; and its spans, inside its values.

A `Change` gets a text and the name of its field, or None for prose, and returns what replaces it. It is called for the
same texts in the same order in each visit of a value.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gliner_bento.errors import InvalidField
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.surrogates import without_escaped_surrogates, without_surrogates

Change = Callable[[str, str | None], str]
Keeps = Callable[[str, Any], bool]
"""Whether the value of a field is not visited: gets its name and the value."""

_MAX_DEPTH = 50
_MIN_NUMBER_CHARS = 6
"""Shorter numbers are amounts, not card or phone numbers."""
_PARAMETER = re.compile(r"[A-Za-z_$][\w.$-]*")
_SCALAR = re.compile(r'"(?P<string>(?:[^"\\]|\\.)*)"(?P<names>\s*:)?|-?(?:\d[\d.eE+-]*|[A-Za-z]+)', re.DOTALL)
"""A string, also one that names a field, a number or a word such as `true`, in text that is JSON."""
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_JSON_BEGIN = re.compile(r'\{\s*"|\[\s*["\[{\d]')
_MAX_TRIED = 10
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


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


@dataclass(frozen=True, slots=True)
class Reading:
    """A text, as it is written, and as it is read: in JSON, also inside other text and in strings of JSON, with
    characters in place of their escapes. places: where each character that is read, and the end, is written."""

    written: str
    text: str
    places: Sequence[int]

    @classmethod
    def plain(cls, text: str) -> Reading:
        """A text that is read as it is written."""
        return cls(text, text, range(len(text) + 1))

    def in_written(self, span: LabeledSpan) -> LabeledSpan:
        """Where a span of what is read is written."""
        return span.at(self.places[span.start], self.places[span.end])

    def in_read(self, span: LabeledSpan) -> LabeledSpan:
        """Where a span of what is written is read."""
        return span.at(bisect_left(self.places, span.start), bisect_left(self.places, span.end))


def reading(text: str) -> Reading:
    """How a text is read."""
    if "\\" not in text:
        return Reading.plain(text)
    pieces: list[str] = []
    places: list[int] = []
    end = 0
    for first, last in _json_in(text):
        for match in _STRING.finditer(text, first, last):
            if "\\" in match[1]:
                start, stop = match.span(1)
                string = _unescaped(text, start, stop)
                inner = reading(string.text) if string.text[:1] in ("{", "[") else Reading.plain(string.text)
                pieces += text[end:start], inner.text
                places += range(end, start)
                places += map(string.places.__getitem__, inner.places[:-1])
                end = stop
    if not pieces:
        return Reading.plain(text)
    return Reading(text, "".join([*pieces, text[end:]]), [*places, *range(end, len(text) + 1)])


def _json_in(text: str) -> Iterator[tuple[int, int]]:
    """[start, end) of the objects and lists of JSON in a text, in order. What looks like a beginning is tried until all
    tries together have read `_MAX_TRIED` times the text, so that the effort grows with its length alone."""
    if is_json(text):
        yield 0, len(text)
        return
    decode = json.JSONDecoder(strict=False).raw_decode
    effort, end = _MAX_TRIED * len(text), 0
    for match in _JSON_BEGIN.finditer(text):
        if match.start() >= end:
            try:
                _, end = decode(text, match.start())
            except (ValueError, RecursionError) as error:
                failed_at = _failed_at(error, text)
                effort -= failed_at - match.start() + failed_at // 32  # it also counts the lines before
                if effort < 0:
                    return
            else:
                yield match.start(), end


def _failed_at(error: Exception, text: str) -> int:
    """Where a decoder of JSON failed; at most, as not all errors say it."""
    if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated"):
        return error.pos
    return len(text)


def _unescaped(text: str, start: int, end: int) -> Reading:
    """What is written at [start, end), in a string of JSON. places: without the end."""
    pieces: list[str] = []
    places: list[int] = []
    for match in _ESCAPE.finditer(text, start, end):
        pieces += text[start : match.start()], _char(match[0])
        places += range(start, match.start() + 1)
        start = match.end()
    return Reading(text, "".join([*pieces, text[start:end]]), [*places, *range(start, end)])


@lru_cache(maxsize=1024)
def _char(escape: str) -> str:
    return without_surrogates(json.loads(f'"{escape}"'))


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A scalar at [start, end) of a text that is JSON, a string without its quotation marks. is_word: whether it is
    `true` or the like, or a field's name that is a word. quote: a quotation mark as one has to be written there, if it
    has none."""

    start: int
    end: int
    is_word: bool
    quote: str


def _scalars(text: str) -> Iterator[_Scalar]:
    """The strings, numbers and words of a text that is JSON; of a string that is JSON, those in it."""
    for match in _SCALAR.finditer(text):
        if match["string"] is None:
            yield _Scalar(*match.span(), match[0].isalpha(), '"')
            continue
        start, end = match.span("string")
        if match["string"][:1] in ("{", "[") and is_json((string := _unescaped(text, start, end)).text):
            places = [*string.places, end]
            for one in _scalars(string.text):
                yield _Scalar(places[one.start], places[one.end], one.is_word, json.dumps(one.quote)[1:-1])
        else:
            yield _Scalar(start, end, match["names"] is not None and bool(_PARAMETER.fullmatch(match["string"])), "")


class JsonScalars:
    """The scalars of a text that is JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._scalars = [*_scalars(text)]
        self._starts = [one.start for one in self._scalars]
        self._ends = [one.end for one in self._scalars]

    def inside(self, spans: Iterable[LabeledSpan]) -> list[LabeledSpan]:
        """The parts of spans that are inside values, so that the JSON stays valid when they are replaced: a number as
        a whole. Of a span over several values, `true` and names of fields that are words stay."""
        return [part for span in spans for part in self._parts(span)]

    def quote(self, span: LabeledSpan) -> str:
        """What has to be around what replaces a part: a quotation mark if it is a number or a word."""
        index = bisect_right(self._starts, span.start) - 1
        return self._scalars[index].quote

    def value(self, span: LabeledSpan) -> str:
        """What a part stands for, without escapes."""
        raw = self._text[span.start : span.end]
        return raw if "\\" not in raw else json.loads(f'"{raw}"', strict=False)

    def _parts(self, span: LabeledSpan) -> Iterable[LabeledSpan]:
        scalars = self._scalars[bisect_right(self._ends, span.start) : bisect_left(self._starts, span.end)]
        for one in scalars:
            part = (
                span.at(one.start, one.end)
                if one.quote
                else span.at(max(span.start, one.start), min(span.end, one.end))
            )
            if any(map(str.isalnum, self.value(part))) and not (one.is_word and len(scalars) > 1):
                yield part


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
