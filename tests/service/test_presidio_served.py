"""`/analyze` gives the entities of `/v1/extract` with Presidio's names, and real clients take them."""

from __future__ import annotations

import json
import re

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
ENTITIES = {"PERSON": "person", "ORGANIZATION": "organization", "LOCATION": "location"}


def analyze(service, **body):
    return service.request("POST", "/analyze", json={"language": "en", **body}).json()


@pytest.mark.parametrize("threshold", [0.3, 0.9])
def test_the_entities_are_those_of_extract(service, threshold):
    ours = service.extract(text=TEXT, labels=ENTITIES, threshold=threshold).json()["entities"]
    theirs = analyze(service, text=TEXT, entities=list(ENTITIES), score_threshold=threshold)
    fields = ("start", "end", "score")
    assert [(one["entity_type"], *(one[name] for name in fields)) for one in theirs] == [
        (one["label"], *(one[name] for name in fields)) for one in ours
    ]
    assert ours
    assert analyze(service, text=[TEXT, "Nobody."], entities=list(ENTITIES), score_threshold=threshold)[0] == theirs


def test_the_documented_calls_find_and_anonymize(service):
    page = (PROJECT_ROOT / "docs" / "migrate" / "presidio.md").read_text(encoding="utf-8")
    analyzed, anonymized = (json.loads(body) for body in re.findall(r"-d '(\{.*?\})'\n", page, re.DOTALL))
    found = service.request("POST", "/analyze", json=analyzed).json()
    assert [analyzed["text"][one["start"] : one["end"]] for one in found] == ["Bill Gates", "Redmond"]
    answer = service.request("POST", "/anonymize", json=anonymized).json()
    assert answer["text"] == "<PERSON> lives in *******."


def test_what_has_a_form_is_found_by_it(service):
    """The bundled model takes the card for a phone number, and the passport for a social security number."""
    text = "My card is 4111 1111 1111 1111, I log in from IP 192.168.0.1, my SSN 536-22-1234, passport X1234567"
    found = [(one["entity_type"], text[one["start"] : one["end"]]) for one in analyze(service, text=text)]
    assert found == [
        ("CREDIT_CARD", "4111 1111 1111 1111"),
        ("IP_ADDRESS", "192.168.0.1"),
        ("US_SSN", "536-22-1234"),
        ("US_PASSPORT", "X1234567"),
    ]
    body = {"text": text, "labels": ["phone", "card", "ip", "ssn", "passport"], "recognizers": True}
    ours = service.extract(**body).json()["entities"]
    assert [(one["label"], one["text"], one["source"]) for one in ours] == [
        (label, number, "pattern") for label, (_, number) in zip(("card", "ip", "ssn", "passport"), found, strict=True)
    ]
