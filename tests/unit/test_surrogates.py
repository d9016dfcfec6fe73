"""Lone surrogates of JSON become U+FFFD, whatever stands beside them, and at the cost of a few calls."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.surrogates import without_escaped_surrogates, without_surrogates

_PARTS = [
    r"\ud83d",
    r"\uDE00",
    r"\uDBFF",
    r"\udc00",
    r"\\",
    r"\n",
    r"\"",
    r"\u0041",
    r"\u00e9",
    "ud83d",
    "a",
    "é",
    "😀",
]


@given(st.lists(st.sampled_from(_PARTS), max_size=12).map("".join))
def test_only_lone_halves_are_replaced(string: str) -> None:
    content = f'"{string}"'
    read = json.loads(without_escaped_surrogates(content.encode()))
    assert read == without_surrogates(json.loads(content))


@pytest.mark.parametrize("content", [b'"\xff\xfe\\ud83d"', rb'"\ud8"', rb'"\ud83', rb'{"a\ud83\uzzzz'])
def test_what_is_no_json_stays_so(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # json and UTF-8 have different ones
        json.loads(without_escaped_surrogates(content))


@pytest.mark.parametrize("part", [r"\ud83d\ude00", r"\ud83d", r"\ude00", r"\\", r"\n"])
def test_the_number_of_calls_does_not_grow_with_the_number_of_escapes(part: str) -> None:
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    content = f'"\\ud83d {part * 1000}"'.encode()
    sys.setprofile(count)
    try:
        without_escaped_surrogates(content)
    finally:
        sys.setprofile(None)
    assert calls < 100
