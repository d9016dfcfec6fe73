"""The JSON of a large answer in pieces, so that it is never in memory as a whole and other requests get their turns.

The pieces together are the bytes of `msgspec.json.encode`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import msgspec

from gliner_bento.pieces import coalesced
from gliner_bento.types import BatchResult, ExtractBatchResponse, Extraction

MIN_RESULTS = 2000
"""Entities and relations of the smallest answer that is sent in pieces."""

_ELEMENTS = 256


def is_large(answer: Any) -> bool:
    """Whether to send an answer in pieces."""
    if isinstance(answer, ExtractBatchResponse):
        return sum(_results(one.result) for one in answer.results) >= MIN_RESULTS
    return _results(answer) >= MIN_RESULTS


def json_pieces(answer: Any) -> AsyncIterator[bytes]:
    """The JSON of a dataclass."""
    return coalesced(_parts(answer))


def _results(answer: Any) -> int:
    return len(answer.entities) + len(answer.relations) if isinstance(answer, Extraction) else 0


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, list | tuple):
        yield from _joined(b"[", _elements(value), b"]")
    elif is_dataclass(value):
        members = (
            chain((b'"%s":' % field.name.encode(),), _parts(getattr(value, field.name))) for field in fields(value)
        )
        yield from _joined(b"{", members, b"}")
    else:
        yield msgspec.json.encode(value)


def _elements(values: Sequence[Any]) -> Iterator[Iterable[bytes]]:
    """Large elements one by one, small ones together."""
    if values and isinstance(values[0], BatchResult):
        yield from map(_parts, values)
        return
    for at in range(0, len(values), _ELEMENTS):
        yield (msgspec.json.encode(values[at : at + _ELEMENTS])[1:-1],)


def _joined(begin: bytes, members: Iterator[Iterable[bytes]], end: bytes) -> Iterator[bytes]:
    yield begin
    for number, member in enumerate(members):
        if number:
            yield b","
        yield from member
    yield end
