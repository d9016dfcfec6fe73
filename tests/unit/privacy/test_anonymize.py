"""Spans are resolved and replaced as by Presidio's anonymizer, whose answers (2.2.366) are recorded here."""

from __future__ import annotations

import hashlib
import random

import pytest
from pydantic import TypeAdapter

from gliner_bento.errors import InvalidField, TooLarge
from gliner_bento.privacy.anonymize import Detected, Operator, anonymize

TEXT = "My name is Bond, James Bond; call 555 0100."
OPERATORS = TypeAdapter(dict[str, Operator])
LIMIT = 1000


def anonymized(spans, operators=None, text=TEXT):
    detected = [Detected(*span) for span in spans]
    return anonymize(text, detected, OPERATORS.validate_python(operators or {}), LIMIT)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(11, 15, "PERSON", 0.8), (17, 27, "PERSON", 0.8)], "My name is <PERSON>, <PERSON>; call 555 0100."),
        ([(17, 22, "PERSON", 0.8), (23, 27, "PERSON", 0.8)], "My name is Bond, <PERSON>; call 555 0100."),
        ([(17, 22, "PERSON", 0.8), (23, 27, "NAME", 0.8)], "My name is Bond, <PERSON> <NAME>; call 555 0100."),
        ([(17, 24, "PERSON", 0.8), (20, 27, "PERSON", 0.2)], "My name is Bond, <PERSON>; call 555 0100."),
        ([(17, 24, "PERSON", 0.8), (20, 27, "NAME", 0.2)], "My name is Bond, <PERSON><NAME>; call 555 0100."),
        ([(17, 27, "PERSON", 0.8), (20, 24, "NAME", 0.9)], "My name is Bond, <PERSON>; call 555 0100."),
        ([(17, 27, "PERSON", 0.8), (17, 27, "NAME", 0.9)], "My name is Bond, <NAME>; call 555 0100."),
        ([(17, 27, "PERSON", 0.8), (17, 27, "NAME", 0.8)], "My name is Bond, <NAME>; call 555 0100."),
        ([], TEXT),
    ],
)
def test_conflicts_are_resolved(spans, expected):
    assert anonymized(spans).text == expected


def test_items_come_last_first_with_offsets_in_the_new_text():
    result = anonymized([(11, 15, "PERSON", 0.8), (34, 42, "PHONE_NUMBER", 0.5)], {"PERSON": {"type": "redact"}})
    assert result.text == "My name is , James Bond; call <PHONE_NUMBER>."
    assert [(item.start, item.end, item.operator) for item in result.items] == [(30, 44, "replace"), (11, 11, "redact")]
    assert [result.text[item.start : item.end] for item in result.items] == [item.text for item in result.items]


@pytest.mark.parametrize(
    ("operator", "put"),
    [
        ({"type": "replace"}, "<PHONE_NUMBER>"),
        ({"type": "replace", "new_value": "REDACTED"}, "REDACTED"),
        ({"type": "redact"}, ""),
        ({"type": "keep"}, "555 0100"),
        ({"type": "mask", "masking_char": "*", "chars_to_mask": 4, "from_end": True}, "555 ****"),
        ({"type": "mask", "masking_char": "*", "chars_to_mask": 40}, "********"),
        ({"type": "mask", "masking_char": "*", "chars_to_mask": -1}, "555 0100"),
        ({"type": "hash", "salt": "s" * 16}, hashlib.sha256(b"555 0100" + b"s" * 16).hexdigest()),
        (
            {"type": "hash", "hash_type": "sha512", "salt": "s" * 16},
            hashlib.sha512(b"555 0100" + b"s" * 16).hexdigest(),
        ),
    ],
)
def test_operators(operator, put):
    (item,) = anonymized([(34, 42, "PHONE_NUMBER", 0.5)], {"DEFAULT": operator}).items
    assert (item.text, item.operator) == (put, operator["type"])


def test_a_hash_without_a_salt_differs_each_time_and_a_short_salt_is_refused():
    span = [(34, 42, "PHONE_NUMBER", 0.5)]
    assert anonymized(span, {"DEFAULT": {"type": "hash"}}) != anonymized(span, {"DEFAULT": {"type": "hash"}})
    with pytest.raises(InvalidField, match="salt"):
        anonymized(span, {"DEFAULT": {"type": "hash", "salt": "short"}})


@pytest.mark.parametrize("operator", ["hash", "keep", "redact", "replace"])
def test_spans_of_different_types_that_overlap_have_a_limit(operator):
    """Each would be copied and hashed: of 32 MB, for an hour."""
    spans = [(start, start + 20, f"TYPE{start}", 0.5) for start in range(10)]
    assert anonymized(spans, {"DEFAULT": {"type": operator}}).items
    spans = [(start, start + 200, f"TYPE{start}", 0.5) for start in range(6)]
    with pytest.raises(TooLarge, match="analyzer_results"):
        anonymized(spans, {"DEFAULT": {"type": operator}}, "a" * 210)


@pytest.mark.slow
def test_it_answers_what_presidios_anonymizer_answers():
    """On random spans; the real package, which is no dependency."""
    presidio = pytest.importorskip("presidio_anonymizer", reason="presidio-anonymizer is not installed")
    engine, chance = presidio.AnonymizerEngine(), random.Random(7)
    text = "aa  bb cc   dd ee ff  gg hh"
    for _ in range(2000):
        spans = []
        for _ in range(chance.randrange(6)):
            start = chance.randrange(len(text))
            spans.append((start, chance.randint(start, len(text)), chance.choice("AB"), chance.choice([0.2, 0.5])))
        theirs = engine.anonymize(text, [presidio.RecognizerResult(t, s, e, c) for s, e, t, c in spans])
        ours = anonymized(spans, text=text)
        assert ours.text == theirs.text, spans
        assert [(one.start, one.end, one.entity_type, one.text) for one in ours.items] == [
            (one.start, one.end, one.entity_type, one.text) for one in theirs.items
        ], spans
