"""Spans to redact: an entity over an empty line is cut there, and no part of it is lost."""

from __future__ import annotations

import pytest

from gliner_bento.paragraphs import paragraphs
from gliner_bento.privacy.spans import LabeledSpan, merged, spans_of
from gliner_bento.tasks.extraction import Entity, SourcedEntity


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Nora Kim", ["Nora Kim"]),
        ("Nora\nKim", ["Nora\nKim"]),
        ("Nora Kim\n\nBosch", ["Nora Kim", "Bosch"]),
        ("Nora Kim \r\n \t\r\n  Bosch", ["Nora Kim", "Bosch"]),
        ("a\u2029b\n\n\n\nc", ["a", "b", "c"]),
        ("\n\n", []),
    ],
)
def test_paragraphs(text: str, parts: list[str]) -> None:
    around = f"x {text} y"
    found = [around[start:end] for start, end in paragraphs(around, 2, 2 + len(text))]
    assert found == parts


def test_an_entity_over_an_empty_line_has_a_span_for_each_paragraph() -> None:
    text = "Dear Nora Kim\n\nBosch, mail a@b.example"
    entities = [
        Entity(5, 20, text[5:20], "person", 0.97),
        SourcedEntity(27, 38, text[27:], "e-mail", 1.0, "pattern"),
    ]
    spans = spans_of(text, entities)
    assert [(text[one.start : one.end], one.label, one.by_recognizer, one.score) for one in spans] == [
        ("Nora Kim", "person", False, 0.97),
        ("Bosch", "person", False, 0.97),
        ("a@b.example", "e-mail", True, 1.0),
    ]


TABLE = "id,name,sum\r\n7,Ada Ng,120.50\r\n8,Bo Ek,9.00\r\n"


@pytest.mark.parametrize(
    ("text", "found", "parts"),
    [
        (TABLE, "120.50\r\n8", ["120.50", "8"]),
        (TABLE.replace("\r", "").replace(",", "|"), "120.50\n8", ["120.50", "8"]),
        (TABLE, "Ada Ng,120.50\r\n8,Bo Ek", ["Ada Ng,120.50", "8,Bo Ek"]),
        ("Well, Ada\nNg, so it is, and more", "Ada\nNg", ["Ada\nNg"]),
        ("Ask Nora\nKim", "Nora\nKim", ["Nora\nKim"]),
    ],
)
def test_an_entity_over_two_rows_of_a_table_has_a_span_for_each(text: str, found: str, parts: list[str]) -> None:
    start = text.index(found)
    spans = spans_of(text, [Entity(start, start + len(found), found, "person", 0.97)])
    assert [text[one.start : one.end] for one in spans] == parts


def test_the_label_of_joined_spans_is_the_denied_one_then_a_recognizers_then_the_longest_ones() -> None:
    model, longer = LabeledSpan(0, 4, "model"), LabeledSpan(2, 9, "longer")
    recognizer = LabeledSpan(3, 5, "recognizer", by_recognizer=True)
    denied = LabeledSpan(4, 5, "denied", by_recognizer=True, is_denied=True)
    for spans in ([longer, model], [recognizer, longer, model], [denied, recognizer, longer, model]):
        assert [(one.start, one.end, one.label) for one in merged(spans)] == [(0, 9, spans[0].label)]
