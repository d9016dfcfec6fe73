"""Placeholders as language models write them, and the originals again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.errors import TooLarge
from gliner_bento.privacy.redact import CharBudget
from gliner_bento.privacy.restoring import Restorer

MAPPING = {
    "[PERSON_1]": "Ada Lovelace",
    "[PERSON_12]": "Bob",
    "[PHONE_NUMBER_1]": "+44 1",
    "[NOTE_1]": 'a "b" \\',
    "[PERSON_6ac3c336e4094835]": "Eve",
    "[A_B_1]": "x",
    "[AB_1]": "y",
    "[NAME_OR_ALIAS_1]": "A&B",
}
RESTORED = {
    "[PERSON_1] and [PERSON_12]": "Ada Lovelace and Bob",
    "PERSON_1, PERSON_12.": "Ada Lovelace, Bob.",
    "[Person 1] [person-1] [PERSON1] [ PERSON_1 ]": "Ada Lovelace Ada Lovelace Ada Lovelace Ada Lovelace",
    "**[PERSON_1]**, `[PERSON_1]`, _[PERSON_1]_": "**Ada Lovelace**, `Ada Lovelace`, _Ada Lovelace_",
    "<PERSON_1> {PERSON_1} 【PERSON_1】 &lt;NAME_OR_ALIAS_1&gt;": "Ada Lovelace Ada Lovelace Ada Lovelace A&amp;B",
    "[PERSON_1]'s and PERSON_1's": "Ada Lovelace's and Ada Lovelace's",
    r"\[PERSON\_1\]": "Ada Lovelace",
    "[PERSON_1, PERSON_12]": "[Ada Lovelace, Bob]",
    "[phone number 1]": "+44 1",
    "https://x.org/%5BPERSON_1%5D?q=[PERSON_1]": "https://x.org/Ada%20Lovelace?q=Ada%20Lovelace",
    '{"to": "[PERSON_1]", "note": "[NOTE_1]"}': json.dumps({"to": "Ada Lovelace", "note": MAPPING["[NOTE_1]"]}),
    'not JSON: "[NOTE_1]"': 'not JSON: "a "b" \\"',
    "[PERSON_6ac3c336e4094835] PERSON_6ac3c336e4094835": "Eve Eve",
    "はPERSON_1です": "はAda Lovelaceです",
    r'{"to": "a\nPERSON_1 \u00e9PERSON_12"}': json.dumps({"to": "a\nAda Lovelace éBob"}).replace("00E9", "00e9"),
    "[A_B_1] [AB_1]": "x y",
}
LEFT = ["Person 1", "person_1", "XPERSON_1", "PERSON_1X", "PERSON_1_2", "persons 1", "[PERSON 1", "a_PERSON_1"]
TEXT = (
    "Dear [PERSON_1], PERSON_12 **[Person 1]** %5BPERSON_1%5D &lt;AB_1&gt; [phone  number_1] in [a] persona 1, "
    r"\[PERSON\_1\] \nPERSON_1 a_PERSON_1 "
    "はPERSON_1です: https://x.org/?q=[PERSON_1]&p=PERSON_1 "
)


@pytest.mark.parametrize("text", RESTORED)
def test_what_is_unambiguous_is_restored(text):
    restorer = Restorer(MAPPING)
    assert restorer.restore(text) == RESTORED[text]
    assert (restorer.counts.ambiguous, [*restorer.counts.unknown]) == (0, [])


@pytest.mark.parametrize("text", LEFT)
def test_ordinary_words_stay(text):
    restorer = Restorer(MAPPING)
    assert restorer.restore(text) == text
    assert restorer.counts.restored == 0


def test_what_may_stand_for_several_stays_and_is_counted_and_what_is_unknown_is_reported():
    restorer = Restorer(MAPPING)
    text = "[ab 1] [PERSON_3] [Person 4] [CITY_1] [note: 5] <h1> [PERSON_1]"
    assert restorer.restore(text) == text.replace("[PERSON_1]", "Ada Lovelace")
    assert (restorer.counts.restored, restorer.counts.ambiguous) == (1, 1)
    assert [*restorer.counts.unknown] == ["[PERSON_3]", "[Person 4]", "[CITY_1]"]


def test_originals_are_not_restored_again():
    assert Restorer({"[A_1]": "[B_1]", "[B_1]": "x"}).restore("[A_1]") == "[B_1]"


@given(st.lists(st.integers(1, 9), min_size=40))
def test_chunks_of_any_size_give_the_same_text_and_hold_back_at_most_one_placeholder(sizes):
    restorer, restored, held, position = Restorer(MAPPING), "", "", 0
    for size in [*sizes, len(TEXT)]:
        part, held = restorer.restore_chunk(held + TEXT[position : position + size])
        restored, position = restored + part, position + size
        url = held.find("://") if "://" in held else len(held)
        assert len(held[:url]) <= max(map(len, MAPPING)) + 24
        assert not held or held[0] in "[<{&%\\【［:" or held[0].isalpha()
    assert restored + restorer.restore(held, "text") == Restorer(MAPPING).restore(TEXT, "text")


def test_nothing_is_held_back_that_cannot_be_a_placeholder():
    for text in ("It is done.", "[PERSON_1]", "see [1]", "x < 3", "100 %"):
        assert Restorer(MAPPING).restore_chunk(text)[1] in ("", "%")
    assert Restorer(MAPPING).restore_chunk("Dear [PER") == ("Dear ", "[PER")
    assert Restorer({}).restore_chunk("Dear [PER") == ("Dear [PER", "")


def test_a_long_run_of_underscores_is_one_separator():
    """As a quantifier for each underscore, the text without a number would take years."""
    name = f"A{'_' * 30}B"
    restorer = Restorer({f"[{name}_1]": "Ada"})
    assert restorer.restore(f"a{'_' * 80}x") == f"a{'_' * 80}x"
    assert restorer.restore(f"[{name}_1] [a b 1]") == "Ada Ada"


def test_the_originals_of_all_texts_have_a_maximum_length():
    restorer = Restorer({"[PERSON_1]": "x" * 100}, CharBudget(300))
    assert len(restorer.restore("[PERSON_1] [PERSON_1]")) == 201
    assert restorer.restore_chunk("[PERSON_1] a")[0] == "x" * 100 + " a"
    with pytest.raises(TooLarge, match="more than 300 characters") as raised:
        restorer.restore("[PERSON_1]")
    assert raised.value.param == "text"


def test_without_a_limit_of_the_caller_there_is_one():
    with pytest.raises(TooLarge):
        Restorer({"[A_1]": "x" * 2**20}).restore("[A_1] " * 40)


def test_many_names_that_begin_and_end_alike_are_not_compared_one_by_one():
    """With every name at every character, this would take hours."""
    mapping = {f"[{'A' * size}_1]": str(size) for size in range(1, 900)} | {
        f"[{'_'.join('B' * size)}_1]": f"b{size}" for size in range(1, 450)
    }
    text = "a" * 100_000 + " " + "b " * 100_000
    restorer = Restorer(mapping)
    assert restorer.restore(f"{text}[AAA_1] [B_B_1] [b b b 1]") == f"{text}3 b2 b3"


def test_the_longest_name_and_the_first_match_win():
    mapping = {"[NAME_1]": "x", "[FULL_NAME_1]": "Ada", "[FULL_NAME_1_NAME_2]": "Bob", "[A1_2]": "y", "[A_12]": "z"}
    restored = Restorer(mapping).restore("[full name 1] [FULL_NAME_1_NAME_2] FULL_NAME_1, [Name 1] [A1_2] [A_12] [a12]")
    assert restored == "Ada Bob Ada, x y z [a12]"
