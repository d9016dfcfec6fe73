from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.engine.text.relation_windows import RelationWindows
from gliner_bento.engine.text.words import Words
from gliner_bento.errors import InvalidField

ONE, TWO, THREE = RelationWindows(1, 0), RelationWindows(2, 1), RelationWindows(3, 1)

# Entities are in brackets; of the parts, only the letters count.
TEXTS = {
    "a sentence each": (ONE, "[A] met [B]. [C] met [D].", ["AmetB", "CmetD"]),
    "one with one entity has the sentence before it": (
        ONE,
        "[A] met [B]. It is in [C]. [D] ran. [E].",
        ["AmetBItisinC", "ItisinCDran", "DranE"],
    ),
    "in its paragraph": (ONE, "[A] met [B].\n\nIt is in [C].", ["AmetB"]),
    "and one without entities has no relations": (ONE, "[A] met [B]. It rained. It rained on [C].", ["AmetB"]),
    "two, overlapping": (TWO, "[A] ran. [B] ran. [C] ran.", ["AranBran", "BranCran"]),
    "the last part is complete": (THREE, "[A] a. [B] b. [C] c. [D] d.", ["AaBbCc", "CcDd"]),
    "none for one entity": (TWO, "[A] ran. It rained.", []),
    "none ends inside an entity": (ONE, "[Acme. Inc] hired [B]. [C] met [D].", ["AcmeInchiredB", "CmetD"]),
    "nor after a title": (
        ONE,
        "[A] met Prof. [B]. [C] and [J. D] met no. [5].",
        ["AmetProfB", "CandJDmetno5"],
    ),
    "a paragraph ends a part": (TWO, "[A] met [B].\n\n[C] met [D].", ["AmetB", "CmetD"]),
    "so does a row of a table": (TWO, "Name, Employer\n[A], [B]\r\n[C], [D]\n[E], [F]", ["AB", "CD", "EF"]),
    "whatever its entities are": (ONE, "[A], [B]\n[C], d\n[E], [F]", ["AB", "EF"]),
    "so does an item of a list": (ONE, "- [A] of [B]\n- [C]\n- [D] of [E]", ["AofB", "DofE"]),
    "a row beside a heading does not": (ONE, "Team\n[A], [B]\nOther team\n[C], [D]", ["TeamABOtherteamCD"]),
    "lines with an entity each are one": (ONE, "Name: [A]\nEmployer: [B]\nCity: [C]", ["NameAEmployerBCityC"]),
    "a wrapped line is a sentence": (
        ONE,
        "[A], who had come to the island with [B] in the autumn and\nnever left, met [C] and [D].\n[E] met [F].",
        ["AwhohadcometotheislandwithBintheautumnandneverleftmetCandD", "EmetF"],
    ),
    "nested entities of the same words are one": (ONE, "[A] ran. [B] met [C].", ["BmetC"]),
}


def marked(text: str) -> tuple[str, Words, np.ndarray]:
    """The text without brackets, its words, and the spans that were in brackets."""
    spans, plain = [], ""
    for piece in re.split(r"(\[[^]]*\])", text):
        if piece.startswith("["):
            spans.append((len(plain), len(plain) + len(piece) - 2))
        plain += piece.strip("[]")
    bounds = np.array([one.span() for one in re.finditer(r"\w+|[^\w\s]", plain)], np.int64).reshape(-1, 2)
    words = Words(np.zeros(len(bounds), np.int32), np.ones(len(bounds), np.int64), bounds)
    return plain, words, np.array(spans, np.int64).reshape(-1, 2).T


def letters(text: str, words: Words, part: tuple[int, int]) -> str:
    return re.sub(r"\W", "", text[words[slice(*part)].start : words[slice(*part)].end])


@pytest.mark.parametrize(("windows", "text", "expected"), TEXTS.values(), ids=TEXTS.keys())
def test_where_parts_begin_and_end(windows: RelationWindows, text: str, expected: list[str]) -> None:
    plain, words, spans = marked(text)
    parts = windows.parts(plain, words, np.concatenate([spans, spans], axis=1))
    assert [letters(plain, words, part) for part in parts] == expected
    assert windows.may_divide(plain, words) or len(parts) <= 1


@given(
    st.lists(
        st.sampled_from(["[a] ", "[b c] ", "word ", ". ", "! A ", "\n", "\n\n", ", ", "Mr. "]), min_size=1, max_size=200
    ),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_parts_are_in_order_and_every_two_entities_of_a_sentence_share_one(
    pieces: list[str], sentences: int, overlap: int
) -> None:
    plain, words, spans = marked("".join(pieces))
    if not len(words):
        return
    windows = RelationWindows(sentences, min(overlap, sentences - 1))
    parts = windows.parts(plain, words, spans)
    assert parts == sorted(parts)
    assert all(0 <= start < end <= len(words) for start, end in parts)
    assert len(parts) <= max(64, len(words) // 4)
    if not windows.may_divide(plain, words):
        assert parts in ([], [(0, len(words))])
    for start, end in parts:
        inside = (spans[0] >= words.bounds[start, 0]) & (spans[1] <= words.bounds[end - 1, 1])
        assert len({*map(tuple, spans[:, inside].T.tolist())}) > 1
        cut = (spans[0] < words.bounds[start, 0]) & (spans[1] > words.bounds[start, 0])
        assert not cut.any()


def test_many_short_parts_are_joined() -> None:
    plain, words, spans = marked("[A] [B]. " * 500)
    parts = ONE.parts(plain, words, spans)
    assert len(words) == 1500
    assert 200 < len(parts) <= 375
    assert (parts[0][0], parts[-1][1]) == (0, len(words))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ((None, None, None, None), None),
        ((None, None, None, TWO), TWO),
        (("whole", None, None, TWO), None),
        (("sentences", None, None, None), ONE),
        (("sentences", None, None, THREE), THREE),
        ((None, 3, None, None), RelationWindows(3, 1)),
        ((None, 3, None, RelationWindows(3, 2)), RelationWindows(3, 2)),
        ((None, None, 0, TWO), RelationWindows(2, 0)),
        ((None, 4, 3, TWO), RelationWindows(4, 3)),
        (("whole", 1, None, None), "relation_window_sentences"),
        (("whole", None, 0, None), "relation_window_overlap_sentences"),
        ((None, 2, 2, None), "relation_window_overlap_sentences"),
        (("sentences", None, 2, TWO), "relation_window_overlap_sentences"),
    ],
)
def test_which_windows_are_chosen(chosen: tuple, expected: RelationWindows | str | None) -> None:
    if not isinstance(expected, str):
        assert RelationWindows.chosen(*chosen) == expected
        return
    with pytest.raises(InvalidField, match=expected) as raised:
        RelationWindows.chosen(*chosen)
    assert raised.value.param == expected
