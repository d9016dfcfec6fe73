"""Encodes an answer of any format as JSON in parts of a bounded size, so that a large answer is never in memory as a
whole, and does not delay other requests.

The joined parts are the bytes of `msgspec.json.encode`. An answer consists of dataclasses, dictionaries, lists and
scalars; a large piece of it may be a `LazySequence` or a `LazyText`, whose content is computed while it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import msgspec
from pydantic import WithJsonSchema

_PART_BYTES = 16 * 1024
_MAX_ELEMENTS = 256  # maximum number of flat elements (see `_is_flat`) of a list in one part
_FEW_ELEMENTS = 128  # maximum length of a list or dictionary in a dataclass that is encoded in one part
_SCALARS = {str, int, float, bool, type(None)}

Element = TypeVar("Element")


class LazySequence(Sequence[Element], Generic[Element]):
    """`make(value)` for each of `values`. The results must be small, because several are encoded together."""

    def __init__(self, make: Callable[[Any], Element], values: Sequence[Any]) -> None:
        self._make = make
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Element: ...
    @overload
    def __getitem__(self, index: slice) -> list[Element]: ...
    def __getitem__(self, index: int | slice) -> Element | list[Element]:
        if isinstance(index, slice):
            return [self._make(value) for value in self._values[index]]
        return self._make(self._values[index])


@dataclass(frozen=True, slots=True)
class LazyText:
    """A text whose pieces are made while it is written."""

    pieces: Callable[[], Iterable[str]]


Text = Annotated[LazyText, WithJsonSchema({"type": "string"})]


_encode = msgspec.json.Encoder(enc_hook=list).encode  # list: for a LazySequence
_LISTS = (list, tuple, LazySequence)  # the last is slow to test for


def json_parts(value: Any) -> Iterator[bytes]:
    """The JSON of a value, in parts. Each part has a bounded size if each list element has one."""
    if isinstance(value, LazyText):
        yield from _string(value.pieces())
    elif isinstance(value, str):
        yield from _string([value])
    elif isinstance(value, dict):
        yield from _joined(b"{", map(_member, value, value.values()), b"}")
    elif is_dataclass(value) and not _is_flat(value):
        members = {name: getattr(value, name) for name in _names_of(value.__class__)}
        is_short = all(not member or _is_short(member) for member in members.values())
        yield from ([_encode(value)] if is_short else json_parts(members))
    elif isinstance(value, _LISTS):
        yield from _joined(b"[", _elements(value), b"]")
    else:
        yield _encode(value)


def json_text(value: Any) -> LazyText:
    """The JSON of a value, as a text."""
    return LazyText(lambda: (part.decode() for part in json_parts(value)))


def _member(name: str, value: Any) -> Iterable[bytes]:
    return chain((_encode(name) + b":",), json_parts(value))


def _elements(values: Sequence[Any]) -> Iterator[Iterable[bytes]]:
    """The parts of a list's elements: flat elements are joined to parts of about `_PART_BYTES`."""
    if not _has_flat_elements(values):
        yield from map(json_parts, values)
        return
    start, count = 0, 1
    while start < len(values):
        part = _encode(values[start : start + count])[1:-1]
        start += count
        fitting = count * _PART_BYTES // (len(part) or 1)  # if the next elements are as long as those of this part
        count = max(1, min(_MAX_ELEMENTS, fitting))
        yield (part,)


def _string(pieces: Iterable[str]) -> Iterator[bytes]:
    yield b'"'
    for piece in pieces:
        for start in range(0, len(piece), _PART_BYTES):
            yield _encode(piece[start : start + _PART_BYTES])[1:-1]
    yield b'"'


def _joined(begin: bytes, members: Iterable[Iterable[bytes]], end: bytes) -> Iterator[bytes]:
    yield begin
    for index, member in enumerate(members):
        if index:
            yield b","
        yield from member
    yield end


def _is_short(value: Any) -> bool:
    """Whether a value is small enough to be encoded in one part."""
    kind = type(value)
    if kind in _SCALARS:
        return kind is not str or len(value) <= _PART_BYTES
    if isinstance(value, dict):
        return len(value) <= _FEW_ELEMENTS and all(map(_is_flat, value.values()))
    if isinstance(value, _LISTS):
        return len(value) <= _FEW_ELEMENTS and _has_flat_elements(value)
    return _is_flat(value)


def _has_flat_elements(values: Sequence[Any]) -> bool:
    """Whether the elements are flat, and no long texts. The first element decides, because all elements of a list have
    one type."""
    if not values or not isinstance(values, list | tuple):  # those of a LazySequence are
        return True
    return all(map(_is_short, values)) if isinstance(values[0], str) else _is_flat(values[0])


def _is_flat(value: Any) -> bool:
    """Whether a value is a scalar, or a dataclass of flat values."""
    kind: Any = type(value)
    return _is_flat_type(kind)


@cache
def _names_of(kind: Any) -> Sequence[str]:
    """The names of a dataclass's fields."""
    return [field.name for field in fields(kind)]


@cache
def _is_flat_type(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_flat_type, get_args(kind)))
    if is_dataclass(kind):
        return all(map(_is_flat_type, get_type_hints(kind).values()))
    return kind in _SCALARS or get_origin(kind) is Literal
