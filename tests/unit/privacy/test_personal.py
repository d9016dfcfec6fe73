"""What is replaced by default: what was found and can be personal data, and what a text announces."""

from __future__ import annotations

import re

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
    assert kept("Leeds expects rain.", found) == kept("Leeds, do not wait.", found) == set()
    assert kept("Leeds is the largest city of the county.", found) == set()
    assert kept("Leeds\n12 chairs", found) == {"Leeds"}


@pytest.mark.parametrize(("score", "names"), [(0.3, {"Ada Ng"}), (0.6, {"Ada Ng", "Bo"})])
def test_an_unsure_person_needs_the_form_of_a_full_name(score, names):
    found = [("Ada Ng", "person", score), ("Bo", "person", score)]
    assert kept("Then Ada Ng saw Bo", found, announced=False) == names


def test_a_word_that_is_also_a_name_belongs_to_the_name_behind_it():
    assert kept("Star Kowalczyk sang.", [("Kowalczyk", "person", 0.9)]) == {"Star Kowalczyk"}
    assert kept("Will Kowalczyk sing?", [("Kowalczyk", "person", 0.9)]) == {"Kowalczyk"}
    assert kept("Then Kowalczyk sang.", [("Kowalczyk", "person", 0.9)]) == {"Kowalczyk"}


@pytest.mark.parametrize(
    ("label", "before", "part", "behind", "rest"),
    [
        ("street address", "", "Am Alten Forsthaus 3", ", 79098 Freiburg im Breisgau", ". Tel"),
        ("street address", "", "Haus 3 B", ",1010 Wien", "\nA"),
        ("street address", "", "Haus 3", "", ", and 5 more"),
        ("id number", "2 ", "87 02 59 512", " 034 26", "."),
        ("id number", "", "4417 220", " 1", " a"),
        ("id number", "", "4417-2201", "", " 5"),
    ],
)
def test_what_a_model_found_in_part_is_replaced_as_a_whole(label, before, part, behind, rest):
    whole = f"{before}{part}{behind}"
    assert kept(f"Mine is {whole}{rest}", [(part, label, 0.9)]) == {whole}


def test_an_unsure_word_with_a_capital_within_a_sentence_is_a_person():
    found = [("Kodak", "person", 0.35)]
    for text in ("They look for Kodak today.", "According to Kodak, no."):
        assert kept(text, found, announced=False) == {"Kodak"}
    for text in (
        "Kodak fell.",
        "A camera of the Kodak kind",
        "North Kodak",
        "we like Kodak Ltd",
        "my dose of Kodak is 5 mg",
    ):
        assert kept(text, found, announced=False) == set()
    assert kept("They look for Kodak.", [("Kodak", "person", 0.25)], announced=False) == set()


def test_an_unsure_word_that_is_also_a_name_needs_a_verb_behind_it():
    assert kept("Ginger added salt.", [("Ginger", "person", 0.3)], announced=False) == {"Ginger"}
    assert kept("Ginger is hot.", [("Ginger", "person", 0.3)], announced=False) == set()
    assert kept("Cargo added salt.", [("Cargo", "person", 0.3)], announced=False) == set()


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


SURVIVE = {
    "date": "Ada Ng, date of birth [[1985-03-12]]T00:00:00Z|dob [[1985-03-12]] 00:00:00|Ada Ng,[[1985-03-12]] 00:00:00|"
    "Ada Ng,[[1985-03-11]]T23:00:00Z|Date of birth:\n[[1985]]|[[1985]] (year of birth)|Ada Townsend [[12.03.1985]]|"
    "My friend [[12.03.1985]]|disorder found on [[12 March 2020]]|appointment for Ada born on [[3 May 1980]]|"
    "Ada Ng (b. [[1985]])|Ada Ng (*[[1985]])|fecha de nacimiento [[1985]]|operiert am [[12.03]]|"
    '{"birthDate": "[[1985-03-12]]T00:00:00"}|order of birth [[May 1985]]|Patient seen [[2024-05-01]] 12:00:01|'
    "hearing loss [[12 March 2020]]|requests his records from [[March 2019]] on|her due date [[12 March 2020]]",
    "id number": "Passport: [[123456789]]|Ada Ng has passport [[123456789]]|personal code: [[49403136526]]|"
    "patient reference [[4940313652]]|tax reference number: [[1234567890]]|Passport, issued [[123456789]]|"
    "SIN [[046 454 286]]|identity [[12.345.678]]|plate [[AB12 CDE]]|her code is [[48213]]|support [[49403136526]]|"
    "fiscal code [[48213]]|national insurance reference: [[4821377]]|NHS [[9434765919]] months",
    "person": "[[Jane]]'s lymphoma has come back|[[Jane]]'s cyst|[[Anna]]'s anemia|[[Peter]] rings tomorrow|"
    "[[Jones]] catheter out today|[[Smith]] test results|[[Wells]]'s tumour|Contact <[[Ada Ng]]> for help|"
    "Contact <[[Ada]]> for help|<[[zora]]> hi, All|The form says:\n[[SCHMIDT]], born 3 May 1980|"
    "The form says:\n[[SCHMIDT]]\nborn|I met [[frank]] in Leeds|Then [[mark stone]] came, All",
    "street address": "[[Hall Street 12]]|[[Unit 4 Mill Lane]]|[[BAHNWEG 3]]|[[No 5 Baker Street]]|[[Bay Road 200]]|"
    "[[No 4 The Green]]|[[Zone B 12 rue Lafitte]]|[[MIAMI 33101]]|"
    "[[The Old Rectory, Church Lane, Ashby]]",
    "city": "Ada Ng lives at 12 Oak Drive in [[Leeds]]|She works in [[Leeds]]|The patient comes to [[Leeds]]|"
    "Patientin aus [[Leeds]]",
}


@pytest.mark.parametrize("label", SURVIVE)
def test_what_may_be_of_a_person_survives(label):
    """In doubt, a find of the model is replaced."""
    lost = []
    for marked in SURVIVE[label].split("|"):
        before, value, behind = re.split(r"\[\[|\]\]", marked)
        start, end = len(before), len(before + value)
        found = [LabeledSpan(start, end, label, score=0.95)]
        spans = personal_spans(before + value + behind, found, announced=True)
        if not any(span.start <= start and span.end >= end for span in spans):
            lost.append(marked)
    assert lost == []


def test_only_capitals_nearby_say_that_small_letters_are_no_name():
    assert kept("to be frank," + " no" * 1000 + " No", [("frank", "person", 0.9)]) == {"frank"}
    assert kept("to be frank," + " no" * 10 + " No", [("frank", "person", 0.9)]) == set()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Date: Tue, 4 Nov 2025", set()),
        ("On Sun 2025-11-04", set()),
        ("Patient: Sun, 34", {"Sun"}),
        ("Mon spoke", {"Mon"}),
    ],
)
def test_a_weekday_before_a_date_is_no_person(text, names):
    day = next(day for day in ("Tue", "Sun", "Mon") if day in text)
    assert kept(text, [(day, "person", 0.7)], announced=False) == names
