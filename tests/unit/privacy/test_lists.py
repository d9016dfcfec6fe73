"""What allow lists and deny lists say about a text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.errors import LimitExceeded
from gliner_bento.privacy import known_values
from gliner_bento.privacy.lists import Listed, ListEntry, Lists

DECOMPOSED = unicodedata.normalize("NFD", "김")


def texts_of(text: str, *entries: ListEntry) -> list[str]:
    spans = Lists(deny=entries).listed(text, [[] for entry in entries if entry.is_pattern]).denied
    assert Lists(entries).listed(text, [[] for _ in ()]).allowed == sorted({(one.start, one.end) for one in spans})
    return [text[one.start : one.end] for one in spans]


@pytest.mark.parametrize(
    ("value", "text", "found"),
    [
        ("ada ng", "ADA  \nNg, Adang, ada-ng", ["ADA  \nNg"]),
        ("x", "x, ax, X", ["x", "X"]),
        ("C++", "C++ c+ C", ["C++"]),
        ("Straße", "STRASSE", ["STRASSE"]),
        ("Işık", "IŞIK met ışık, Is\u0327ik.", ["IŞIK", "ışık", "Is\u0327ik"]),
        ("ibrahim", "İBRAHİM, I\u0307brahim and IBRAHIM", ["İBRAHİM", "I\u0307brahim", "IBRAHIM"]),
        ("Ada", "\uff21\uff44\uff41", ["\uff21\uff44\uff41"]),
        ("caf\u00e9", "cafe\u0301", ["cafe\u0301"]),
        ("渡辺", "渡辺さん", ["渡辺"]),
        ("Acme™", "Acme™, Acme, acme™", ["Acme™", "acme™"]),
        ("x²", "x² x", ["x²"]),
        ("Nr½", "nr½", ["nr½"]),
        ("½ Nr", "NR ½ Nr", ["½ Nr"]),
        ("ｶﾞｽ", "ｶﾞｽ ガス", ["ｶﾞｽ", "ガス"]),
        ("ガス", "ｶﾞｽ ガス", ["ｶﾞｽ", "ガス"]),
        (DECOMPOSED, f"{DECOMPOSED} 김", [DECOMPOSED, "김"]),
        ("김", f"{DECOMPOSED} 김", [DECOMPOSED, "김"]),
        ("…Ada", "…Ada", ["…Ada"]),
        ("Ada…", "x Ada…", ["Ada…"]),
        ("…Ada", "Ada ..Ada ...Ada", ["...Ada"]),
    ],
)
def test_a_value_is_found_as_a_whole_word_in_any_case(value, text, found):
    assert texts_of(text, ListEntry(value)) == found


def test_the_case_of_a_value_may_count():
    assert texts_of("May may", ListEntry("May", case_sensitive=True)) == ["May"]
    assert texts_of("May may", ListEntry("may"), ListEntry("May", case_sensitive=True)) == ["May", "may", "May"]


SPANS = st.tuples(st.integers(0, 9), st.integers(1, 5)).map(lambda one: (one[0], one[0] + one[1]))


@given(st.lists(SPANS), st.lists(SPANS), SPANS)
def test_a_find_is_allowed_inside_one_occurrence(ours, theirs, find):
    listed = Listed(ours) + Listed(theirs)
    assert listed.allows(*find) is any(start <= find[0] and find[1] <= end for start, end in ours + theirs)


def test_patterns_take_the_places_of_their_list():
    lists = Lists([ListEntry("a", is_pattern=True)], [ListEntry("b"), ListEntry("c", is_pattern=True, label="kind")])
    listed = lists.listed("abc", [[(0, 1)], [(2, 3)]])
    assert listed.allowed == [(0, 1)]
    assert [(one.start, one.label, one.score) for one in listed.denied] == [(2, "kind", 1.0)]
    assert [(match.entity, match.is_denied) for match in listed.matches] == [("kind", True)]


def test_values_that_begin_as_every_word_does_have_a_limit(monkeypatch):
    monkeypatch.setattr(known_values, "_MAX_COMPARISONS", 100)
    entries = [ListEntry(f"a a {number}") for number in range(20)]
    assert texts_of("a b " * 200, *entries) == []
    with pytest.raises(LimitExceeded, match="text: "):
        texts_of("a a " * 200, *entries)
    monkeypatch.undo()
    monkeypatch.setattr(known_values, "_MAX_FOUND", 10)
    assert len(texts_of("b " * 10, ListEntry("b"))) == 10
    with pytest.raises(LimitExceeded, match="text: "):
        texts_of("b " * 20, ListEntry("b"))


def test_the_length_of_what_is_compared_counts(monkeypatch):
    monkeypatch.setattr(known_values, "_MAX_COMPARISONS", 10_000)
    long, far = ([ListEntry(value)] * 20 for value in ("a " * 200 + "b a", "a" + "-" * 900 + "b"))
    assert texts_of("a " * 100, *long) == texts_of("a-b", *far) == []
    for text, entries in (("a " * 500, long), ("a" + "+" * 5000 + "b", far)):
        with pytest.raises(LimitExceeded, match="text: "):
            texts_of(text, *entries)
    assert texts_of("a " * 400, *[ListEntry("a " * 200 + "b")] * 20) == [], "another last word"
