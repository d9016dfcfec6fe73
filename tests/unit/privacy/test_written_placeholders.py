"""What texts have in the form of placeholders, which no new placeholder may be confused with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_conversation import redacted, spans_of

from gliner_bento.privacy.restoring import Restorer
from gliner_bento.privacy.written_placeholders import canonical, kinds_in, reserved_in

FORMS = (
    "[{} {}]",
    "[{}_{}]",
    "\\[{}\\_{}\\]",
    "<{} {}>",
    "<{}_{}>",
    "{{{}-{}}}",
    "&lt;{} {}&gt;",
    "%5B{}_{}%5D",
    "【{}{}】",
    "［{}_{}］",
    "{}_{}",
    "a-{}_{}",
    "は{}_{}",
    "{} {}",
)


@pytest.mark.parametrize("placeholder", ["[PERSON_1]", "Person 1", "[ person-1 ]", r"\[PERSON\_1\]"])
def test_the_canonical_form_ignores_how_a_placeholder_is_written(placeholder):
    assert canonical(placeholder) == "person1"


def test_placeholders_of_long_names_and_inside_brackets_are_reserved():
    name = "A" * 200
    texts = [f"[{name}_1] [ Person 2 ] [see CITY_3] [a] [ 4 ] Person 5 person_6 XCITY_7", "<City\n8> PERSON_9a"]
    assert reserved_in(texts, [name, "PERSON", "CITY"]) == {f"{name.lower()}1", "person2", "city3", "city8"}


def test_a_placeholder_with_escapes_of_json_is_reserved_and_counted():
    assert reserved_in([r"[\u00c9L\u00c8VE_1]"], ["ÉLÈVE"]) == {"élève1"}
    restorer = Restorer({"[ÉLÈVE_1]": "Zoë"})
    assert restorer.restore(r"[\u00c9L\u00c8VE] [\u00c9L\u00c8VE_2]") == r"[\u00c9L\u00c8VE] [\u00c9L\u00c8VE_2]"
    assert (restorer.counts.ambiguous, [*restorer.counts.unknown]) == (1, [r"[\u00c9L\u00c8VE_2]"])


def test_a_bracket_that_is_not_closed_is_read_once():
    """In every combination of its spaces, it would take hours."""
    for text in ("[" + " " * 100_000, "[" * 100_000, "[" + "1 " * 50_000, "<" + "A B" * 50_000, "%5B" * 50_000):
        assert reserved_in([text], ["PERSON", "A"]) == set()
        assert [*kinds_in(text)] == []


kinds = st.sampled_from(["PERSON", "Person", "A_PERSON", "A person", "İSIM", "ONOMAΣ", "ONOMAς", "2FA CODE", "E"])
labels = st.sampled_from(["person", "a person", "İsim", "onomaΣ", "2fa code", "e"])
own = st.builds(lambda form, kind, number: form.format(kind, number), st.sampled_from(FORMS), kinds, st.integers(1, 4))


@given(st.lists(st.lists(st.one_of(own, st.sampled_from(["Ada", "Bob", "Eve"])), max_size=8)), labels, labels)
def test_what_texts_have_in_the_form_of_placeholders_stays_as_it_is(words, label, other):
    texts = [" ".join(each) for each in words]
    found = [spans_of(text, "Ada", "Eve", label=label) + spans_of(text, "Bob", label=other) for text in texts]
    new, mapping = redacted(texts, found)
    restorer = Restorer(mapping)
    assert [restorer.restore(text, "text") for text in new] == texts


@pytest.mark.parametrize("name", ["İSIM", "ΟΝΟΜΑΣ", "STRASSE", "ИМЯ", "名前", "न_म"])
def test_names_in_any_script_are_restored_in_any_text(name):
    for form in ("[{}_1]", "<{}_1>", "a {}_1", "[{} 1] İ", "Σ [{}_1]a"):
        assert Restorer({f"[{name}_1]": "Ada"}).restore(form.format(name)).count("Ada") == 1


def test_a_placeholder_without_its_number_stays_and_is_counted():
    """Language models write `[DATE]` where something is to be filled in."""
    restorer = Restorer({"[PERSON_1]": "Ada", "[PHONE_NUMBER_1]": "1"})
    text = "[PERSON], <PHONE NUMBER>, {PERSON}, [CITY], <person>, PERSON, [PERSON 1]"
    assert restorer.restore(text) == text.replace("[PERSON 1]", "Ada")
    assert (restorer.counts.restored, restorer.counts.ambiguous) == (1, 3)
