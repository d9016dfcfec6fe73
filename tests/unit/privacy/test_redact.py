"""Redaction of texts: what is kept, what is replaced, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import examples.redact
from gliner_bento.privacy.redact import RestoreError, restore, restore_placeholders, substituted
from gliner_bento.privacy.spans import LabeledSpan, merged
from gliner_bento.privacy.styles import Placeholders, hashes, mask, remove
from gliner_bento.tasks.extraction import Entity

STYLES = {"placeholder": Placeholders, "mask": lambda: mask, "hash": lambda: hashes(b"key"), "remove": lambda: remove}
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("[]_PERSON12 \r\n\u200d\U0001f600")), max_size=80)


def redact(text, spans, style):
    return substituted(text, [(span, style(text, span)) for span in merged(spans)])


@st.composite
def texts_with_spans(draw):
    text = draw(TEXTS)
    ends = st.integers(0, len(text))
    pairs = draw(st.lists(st.tuples(ends, ends, st.sampled_from(["person", "e mail", "人"])), max_size=8))
    return text, [LabeledSpan(min(a, b), max(a, b), label) for a, b, label in pairs]


@pytest.mark.parametrize("style", STYLES)
@given(case=texts_with_spans())
def test_everything_outside_the_spans_is_kept_and_restoring_gives_the_text(style, case):
    text, spans = case
    redacted = redact(text, spans, STYLES[style]())
    covered = {position for span in spans for position in range(span.start, span.end)}
    outside, position = [], 0
    for one in redacted.replacements:
        outside.append(redacted.text[position : one.start])
        position = one.start + len(one.replacement)
    assert "".join([*outside, redacted.text[position:]]) == "".join(
        char for position, char in enumerate(text) if position not in covered
    )
    assert restore(redacted.text, redacted.replacements).text == text


@given(case=texts_with_spans())
def test_an_edited_text_is_restored_by_its_placeholders(case):
    """Whatever brackets the text itself has. Mentions that differ only in form come back in the first form."""
    text, spans = case
    redacted = redact(text, spans, Placeholders())
    first: dict[str, str] = {}
    expected, position = [], 0
    for one in redacted.replacements:
        expected += [
            redacted.text[position : one.start],
            first.setdefault(one.replacement, one.text),
        ]
        position = one.start + len(one.replacement)
    if not any("[" in one.text or "[" in text for one in redacted.replacements):
        restored = restore_placeholders("new " + redacted.text, redacted.replacements)
        assert restored.text == "new " + "".join([*expected, redacted.text[position:]])


def test_overlapping_spans_are_redacted_as_one_with_the_label_of_the_longest():
    spans = [
        LabeledSpan(8, 12, "c"),
        LabeledSpan(0, 5, "a"),
        LabeledSpan(3, 10, "b"),
        LabeledSpan(12, 14, "d"),
        LabeledSpan(20, 20, "e"),
    ]
    assert merged(spans) == [LabeledSpan(0, 12, "b"), LabeledSpan(12, 14, "d")]


def test_equal_names_have_equal_placeholders_and_numbers_of_the_text_are_left_out():
    text = "[PERSON_1] Ada, ADA\nLovelace, ada  lovelace, Ada"
    spans = [
        LabeledSpan(11, 14, "person"),
        LabeledSpan(16, 28, "person"),
        LabeledSpan(30, 43, "person"),
        LabeledSpan(45, 48, "person"),
    ]
    redacted = redact(text, spans, Placeholders())
    assert redacted.text == "[PERSON_1] [PERSON_2], [PERSON_3], [PERSON_3], [PERSON_2]"


def test_a_placeholder_with_escapes_of_json_is_restored_or_named():
    redacted = redact("Zoë and Ada", [LabeledSpan(0, 3, "élève"), LabeledSpan(8, 11, "élève")], Placeholders())
    edited = r'{"summary": "caf\u00e9, [\u00c9L\u00c8VE_1]; [\u00c9L\u00c8VE_2] [\u00c9L\u00c8VE_3]"}'
    restored = restore_placeholders(edited, redacted.replacements)
    assert restored.text == r'{"summary": "caf\u00e9, Zoë; Ada [\u00c9L\u00c8VE_3]"}'
    assert restored.left == ["[ÉLÈVE_3]"]


def test_one_object_numbers_several_texts_consistently():
    replace = Placeholders()
    redact("Ada", [LabeledSpan(0, 3, "person")], replace)
    assert (
        redact("Bob, Ada", [LabeledSpan(0, 3, "person"), LabeledSpan(5, 8, "person")], replace).text
        == "[PERSON_2], [PERSON_1]"
    )


def test_a_hash_depends_on_key_label_and_name():
    def hashed(text: str, key: bytes = b"a", label: str = "person") -> str:
        return redact(text, [LabeledSpan(0, len(text), label)], hashes(key)).text

    assert hashed("Ada") == hashed("ADA")
    # printf 'person\0ada' | openssl dgst -sha256 -hmac a
    assert hashed("Ada") == "[PERSON_d4ce785d14e2e3f0]"
    assert len({hashed("Ada"), hashed("Bob"), hashed("Ada", b"b"), hashed("Ada", label="city")}) == 4


def test_a_mask_keeps_white_space():
    assert redact("a Ada L", [LabeledSpan(2, 7, "person")], mask).text == "a *** *"


def test_what_cannot_be_restored_is_refused():
    redacted = redact("Ada met Bob", [LabeledSpan(0, 3, "person")], mask)
    with pytest.raises(RestoreError, match="character 0 is not"):
        restore("x*** met Bob", redacted.replacements)
    with pytest.raises(RestoreError, match="only placeholders"):
        restore_placeholders("x*** met Bob", redacted.replacements)


def test_the_example_replaces_overlapping_entities_as_one():
    found = [(0, 8, "city"), (4, 14, "person"), (5, 8, "date"), (14, 15, "x")]
    entities = [Entity(start, end, "", label, 1.0) for start, end, label in found]
    assert examples.redact.redact("0123456789abcdef", entities) == "[city][x]f"


def test_a_text_is_not_searched_for_each_new_placeholder():
    """A file may have 100,000 of them."""

    class Unsearched(str):
        __slots__ = ()

        def __contains__(self, part: str, /) -> bool:
            raise AssertionError(part)

    style, text = Placeholders(), Unsearched("Ada, Bob, [PERSON_2], [PERSON_3a]")
    assert style(text, LabeledSpan(0, 3, "person")) == "[PERSON_1]"
    assert style(text, LabeledSpan(5, 8, "person")) == "[PERSON_3]"
    assert style("[PERSON_4] Eve", LabeledSpan(11, 14, "person")) == "[PERSON_5]"
