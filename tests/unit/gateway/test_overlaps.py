"""Finds that overlap, on the roads on which texts are redacted: all of their characters are replaced."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import changed
from test_mcp import called
from test_recognizers_of_requests import Scripted

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.privacy.conversation import Finds, redact_document
from gliner_bento.privacy.spans import find_patterns
from gliner_bento.privacy.styles import Placeholders

TYPES = ["URL", "EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "IP_ADDRESS"]
SECRET = "tok9z8y7"
URLS = [
    f"https://shop.example.com/reset?mail=zoe@mail.example.org&token={SECRET}",
    f"https://shop.example.com/reset?token={SECRET}&mail=zoe@mail.example.org",
    f"http://shop.example.com/call?to=+4930901820&token={SECRET}",
    f"https://shop.example.com/pay?card=5555555555554444&token={SECRET}",
    f"https://shop.example.com/pay?iban=GB82WEST12345698765432#token={SECRET}",
    f"http://10.20.30.40/reset?token={SECRET}",
    f"http://10.20.30.40:8080/reset/{SECRET}",
    f"https://[2001:db8::7]/reset?token={SECRET}",
    f"https://zoe:{SECRET}@shop.example.com/x",
    f"postgresql://zoe:{SECRET}@db.example.com:5432/orders",
    f"amqp://zoe:{SECRET}@10.20.30.40/orders",
    f"www.example.com/reset?mail=zoe@mail.example.org&token={SECRET}",
    f"example.com?mail=zoe@mail.example.org&token={SECRET}",
    f"example.com:8080/?mail=zoe@mail.example.org&token={SECRET}",
]


def served(replica, **options):
    app = GatewayApp(changed(presidio_entities=(), max_labels=-1, max_text_chars=500, **options))
    app.bind(replica)
    return app


def posted(serving, path, body, replica):
    options = changed(presidio_entities=(), max_labels=-1, max_text_chars=500)
    response = asyncio.run(serving(replica, options).request("POST", path, json=body))
    assert response.status_code == 200
    return response.json()


def by_command(text, serving, replica):
    return redact_document([text], [Finds(find_patterns(text))], Placeholders()).texts[0].text


def by_presidio(text, serving, replica):
    found = posted(serving, "/analyze", {"text": text, "language": "en", "entities": [*TYPES, "PERSON"]}, replica)
    return posted(serving, "/anonymize", {"text": text, "analyzer_results": found}, replica)["text"]


def by_nemo(text, serving, replica):
    body = {"messages": [{"role": "user", "content": text}], "labels": [*TYPES, "PERSON"]}
    content = posted(serving, "/v1/chat/completions", body, replica)["choices"][0]["message"]["content"]
    entities = json.loads(content)["entities"]
    for before, entity in pairwise(entities):
        assert before["end"] <= entity["start"]
    for entity in reversed(entities):  # as the rail does
        text = f"{text[: entity['start']]}[{entity['label']}]{text[entity['end'] :]}"
    return text


def by_mcp(text, serving, replica):
    pytest.importorskip("mcp.server.lowlevel", reason="mcp is not installed")
    arguments = {"text": text, "labels": [*TYPES, "PERSON"]}
    return called(served(replica, enable_mcp=True), "redact", arguments).structured_content["text"]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("road", [by_command, by_presidio, by_nemo, by_mcp])
def test_nothing_of_a_url_stays_that_another_recognizer_scores_higher_inside(road, url, serving):
    redacted = road(f"see {url}, it ends today", serving, MemoryReplica())
    assert SECRET not in redacted
    assert "zoe" not in redacted
    assert redacted.startswith(("see [", "see <"))
    assert redacted.endswith(("], it ends today", ">, it ends today"))
    assert redacted.count("URL") == 1


@pytest.mark.parametrize("road", [by_presidio, by_nemo, by_mcp])
def test_nothing_of_an_entity_stays_that_a_match_divides(road, serving):
    """Only the longest part of the model's entity is returned elsewhere."""
    replica = Scripted(
        ("zoe (zoe@mail.example.org) castellanos", "PERSON"), ("zoe (zoe@mail.example.org) castell", "x")
    )
    text = "from zoe (zoe@mail.example.org) castellanos today"
    redacted = road(text, serving, replica)
    assert "zoe" not in redacted
    assert "castellanos" not in redacted


def test_the_longest_match_names_what_overlaps():
    text = "see https://shop.example.com/?mail=zoe@mail.example.org."
    redacted = redact_document([text], [Finds(find_patterns(text))], Placeholders()).texts[0]
    assert redacted.text == "see [URL_1]."


def test_an_analysis_has_the_url_and_what_is_in_it(serving):
    """As Presidio's: a client that looks for e-mail addresses finds them."""
    text = f"see {URLS[0]}."
    found = posted(serving, "/analyze", {"text": text, "language": "en", "entities": TYPES}, MemoryReplica())
    assert [(one["entity_type"], text[one["start"] : one["end"]]) for one in found] == [
        ("URL", URLS[0]),
        ("EMAIL_ADDRESS", "zoe@mail.example.org"),
    ]
    assert {one["recognition_metadata"]["recognizer_name"] for one in found} == {"UrlRecognizer", "EmailRecognizer"}
    found = posted(
        serving, "/analyze", {"text": text, "language": "en", "entities": ["EMAIL_ADDRESS"]}, MemoryReplica()
    )
    assert [one["entity_type"] for one in found] == ["EMAIL_ADDRESS"]
