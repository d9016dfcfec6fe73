"""What is replaced by default: what was found and can be personal data, and what a text announces."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.personal import personal_spans
from gliner_bento.privacy.spans import LabeledSpan


def kept(text, found, *, announced=True):
    """The texts of the spans that are replaced. found: texts with their labels and scores."""
    spans = [
        LabeledSpan(text.index(part), text.index(part) + len(part), label, score=score) for part, label, score in found
    ]
    return {text[span.start : span.end] for span in personal_spans(text, spans, announced=announced)}


def test_a_city_is_kept_where_somebody_is_mentioned():
    found = [("Leeds", "city", 0.9)]
    assert kept("Trains to Leeds are late.", found) == set()
    assert kept("Residents from Leeds are late.", found) == {"Leeds"}
    assert kept("My flat near Leeds is small.", found) == {"Leeds"}
    assert kept("Name: Ada Ng\nTo Leeds", found) == {"Ada Ng", "Leeds"}
    assert kept("Leeds told the guard.", found) == {"Leeds"}


@pytest.mark.parametrize(("score", "names"), [(0.3, {"Ada Ng"}), (0.6, {"Ada Ng", "Bo"})])
def test_an_unsure_person_needs_the_form_of_a_full_name(score, names):
    found = [("Ada Ng", "person", score), ("Bo", "person", score)]
    assert kept("Then Ada Ng saw Bo", found, announced=False) == names


def test_what_a_recognizer_found_is_kept():
    spans = [LabeledSpan(0, 2, "id number", by_recognizer=True, score=1.0)]
    assert personal_spans("42", spans, announced=True) == spans


def test_a_full_name_that_the_model_took_for_a_place_is_a_person():
    assert kept("Results for Ada Ngozi: none", [("Ada Ngozi", "street address", 0.6)], announced=False) == {"Ada Ngozi"}
    assert kept("Results of Ada Ngozi: none", [("Ada Ngozi", "street address", 0.6)], announced=False) == set()
    assert kept("Results for Ada Tower: none", [("Ada Tower", "street address", 0.6)], announced=False) == set()


def test_hospitals_are_personal_data_where_somebody_is_mentioned():
    assert kept("Fairmont Lakes Hospital has 200 beds.", []) == set()
    assert kept("I was in Fairmont Lakes Hospital.", []) == {"Fairmont Lakes Hospital"}
