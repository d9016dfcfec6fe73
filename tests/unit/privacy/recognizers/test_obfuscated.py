"""Identifiers that are wrapped, spaced, spelled or strewn with characters that nobody sees, are found as a whole."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from obfuscated import cases, missed

from gliner_bento.privacy.recognizers.find import find
from gliner_bento.privacy.recognizers.folding import folded
from gliner_bento.privacy.recognizers.spelled import unspelled

pytestmark = pytest.mark.long


def test_fewer_than_one_in_twenty_obfuscated_identifiers_passes():
    made = cases()
    assert len(made) >= 300
    passed = [
        (kind, name, form)
        for kind, name, form, text in made
        if missed(text, form, [(one.start, one.end) for one in find(text)])
    ]
    assert len(passed) < 0.05 * len(made), (len(made), Counter(name for _, name, _ in passed), passed)


def found(text: str) -> list[tuple[str, str]]:
    return [(one.entity, text[one.start : one.end]) for one in find(text)]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("CREDIT_CARD", "4539  1488  0343\n   6467"),
        ("CREDIT_CARD", "4\u03365\u03363\u03369\u0336 1488 0343 6467\u0336"),
        ("CREDIT_CARD", "&#52;539&nbsp;1488&nbsp;0343&nbsp;646&#55;"),
        ("IBAN_CODE", "DE75.5121.0800.1245.1261.99"),
        ("IBAN_CODE", "DE75 51\n21 0800 1245 1261 99"),
        ("IBAN_CODE", "DE75\n5121 0800 1245 1261 99"),
        ("EMAIL_ADDRESS", "grace [at] navy [dot] example"),
        ("EMAIL_ADDRESS", "grace at navy dot example"),
        ("EMAIL_ADDRESS", "grace@navy\n.example"),
        ("EMAIL_ADDRESS", "grace@navy.\nexample"),
        ("EMAIL_ADDRESS", '"grace hopper"@navy.example'),
        ("EMAIL_ADDRESS", "grace@[203.0.113.77]"),
        ("IP_ADDRESS", "203[.]0[.]113[.]77"),
        ("IP_ADDRESS", "203.000.113.077"),
        ("PHONE_NUMBER", "+1\n503 555 0188"),
        ("PHONE_NUMBER", "(617)\n> 555-0142"),
    ],
)
def test_offsets_cover_the_obfuscated_form(kind, form):
    assert found(f"It is {form}, she said") == [(kind, form)]


@pytest.mark.parametrize("gap", ["  ", "\t", " | ", "|", "/", "\u00b7", " - "])
@pytest.mark.parametrize("digits", [3, 4, 5, 6, 8])
def test_columns_of_numbers_are_not_one_number(gap, digits):
    random = Random(f"{gap}{digits}")
    for columns in range(2, 7):
        for _ in range(20):
            rows = [[random.randrange(10 ** (digits - 1), 10**digits) for _ in range(columns)] for _ in range(8)]
            assert found("\n".join(gap.join(map(str, row)) for row in rows)) == []


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(str(Random(1).randrange(10**7, 10**8)) for _ in range(300)),
        "In 2019\n45567375 were sold, 86899855\nin 2020",
        "4556 7375\n\n8689 9855",
        "4556 7375 | 8689  9855",
        "5 4556 7375\n8689 9855 12",
        "lunch @ noon, @ada.example, see pages 12 -\n14 and 555 (at) 12",
        "a row | 8 | 85.4 | 95.8 | 142.4 | 168.4 | of a text",
        "AT&T, a &copy 2020, x&y;, \\ud800, f(.)x",
    ],
)
def test_numbers_beside_each_other_stay_apart(text):
    assert found(text) == []


def test_a_complete_number_takes_nothing_from_the_next_line():
    assert found("Call +49 30 1234567\n12 items") == [("PHONE_NUMBER", "+49 30 1234567")]
    assert found("card 4539 1488 0343 6467\n123") == [("CREDIT_CARD", "4539 1488 0343 6467")]


def test_folding_keeps_the_place_of_each_character():
    text = "a\u0301b\u200b&#99;\u0336 [at] d"
    read = unspelled(folded(text))
    assert read.text == "abc@d"
    assert [text[slice(*read.span(at, at + 1))] for at in range(5)] == ["a\u0301", "b", "&#99;\u0336", " [at] ", "d"]
