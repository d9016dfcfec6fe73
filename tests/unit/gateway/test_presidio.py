"""Presidio's routes: their shapes, defaults and errors, and the calls that LiteLLM's guardrail makes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from itertools import pairwise

import pytest
from asking import ask_json as ask
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS, changed

from gliner_bento.privacy.recognizers.find import RECOGNIZERS
from gliner_bento.privacy.recognizers.labels import DEFAULT_ENTITIES, PRESIDIO_LABELS
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.tasks.extraction import Entity, Extraction

BODY = {"text": "Ada met Charles", "language": "en", "entities": ["PERSON"]}
BY_MODEL = {"analysis_explanation": None, "recognition_metadata": {"recognizer_name": "GLiNERRecognizer"}}
ADA = {"entity_type": "PERSON", "start": 0, "end": 3, "score": 1.0, **BY_MODEL}
CHARLES = ADA | {"start": 8, "end": 15}


def test_a_text_has_a_list_and_a_list_has_lists(client):
    assert ask(client, "/analyze", BODY).json() == [ADA, CHARLES]
    assert ask(client, "/analyze", BODY | {"text": ["Ada", "", "Ada"]}).json() == [[ADA], [], [ADA]]
    assert ask(client, "/analyze", BODY | {"text": []}).json() == []


def test_the_model_reads_labels_for_presidios_names(client, replica):
    ask(client, "/analyze", BODY | {"entities": ["LOCATION", "EMPLOYEE_ID"]})
    assert replica.calls[0][0][0].labels == {"LOCATION": "location", "EMPLOYEE_ID": "employee id"}
    ask(client, "/analyze", BODY | {"entities": None})
    assert list(replica.calls[1][0][0].labels) == ["PERSON"], "recognizers find e-mail addresses"
    ask(client, "/analyze", BODY | {"entities": ["PERSON", "Person", "PERSON"]})
    assert replica.calls[2][0][0].labels == {"PERSON": "person"}


def test_labels_are_configured(replica, serving):
    configured = ("PERSON=a human being", "STAFF_ID=number of an employee")
    client = serving(replica, changed(presidio_labels=configured, presidio_entities=()))
    assert "STAFF_ID" in ask(client, "/supportedentities").json()
    ask(client, "/analyze", BODY | {"entities": ["STAFF_ID", "PERSON"]})
    labels = {"STAFF_ID": "number of an employee", "PERSON": "a human being"}
    assert replica.calls[0][0][0].labels == labels
    many = changed(presidio_labels=configured, presidio_entities=(), max_labels=100)
    ask(serving(replica, many), "/analyze", BODY | {"entities": []})
    assert set(replica.calls[1][0][0].labels) == {*NEED_A_MODEL, "STAFF_ID"}


NEED_A_MODEL = ("DATE_TIME", "LOCATION", "NRP", "ORGANIZATION", "PERSON")


@pytest.mark.parametrize("name", [*sorted(set(RECOGNIZERS) - {"API_KEY", "PASSWORD"}), "DE_ID_CARD", "NG_NIN"])
def test_what_a_form_or_check_digits_decide_is_not_asked_of_the_model(serving, name):
    class Eager(MemoryReplica):
        """A replica whose model finds each label at the beginning of any text."""

        async def extract(self, items, call):
            self.calls.append((items, call))
            return [Extraction([Entity(0, 3, item.text[:3], one, 1.0) for one in item.labels]) for item in items]

    model = Eager()
    answer = ask(serving(model), "/analyze", BODY | {"entities": [name]})
    assert (answer.status_code, answer.json(), model.calls) == (200, [], [])
    configured = changed(presidio_labels=(f"{name}=a label of this model",))
    ask(serving(model, configured), "/analyze", BODY | {"entities": [name]})
    assert model.calls[-1][0][0].labels == {name: "a label of this model"}


def test_by_default_the_model_is_asked_for_names_places_and_dates(replica, serving):
    client = serving(replica, changed(presidio_entities=(), max_labels=100))
    ask(client, "/analyze", BODY | {"entities": None})
    assert set(replica.calls[0][0][0].labels) == set(NEED_A_MODEL)
    without = changed(presidio_entities=(), max_labels=100, recognizers=("none",))
    ask(serving(replica, without), "/analyze", BODY | {"entities": None})
    assert set(replica.calls[1][0][0].labels) == set(DEFAULT_ENTITIES), "nothing else finds them"


def test_a_type_that_the_request_brings_a_recognizer_for_is_not_asked_of_the_model(client, replica):
    names = ZIP | {"supported_entity": "PERSON"}
    ask(client, "/analyze", BODY | {"entities": ["ZIP", "PERSON"], "ad_hoc_recognizers": [ZIP, names]})
    assert set(replica.calls[0][0][0].labels) == {"PERSON"}


def test_texts_have_their_limits_without_the_model_too(client):
    for text in ("a" * 101, ["a"] * 4, ["a", "a" * 101]):
        assert ask(client, "/analyze", BODY | {"entities": ["US_SSN"], "text": text}).status_code == 413


def test_the_file_has_labels_as_an_object(tmp_path):
    file = tmp_path / "configuration.yaml"
    file.write_text("gliner:\n  presidio_labels:\n    PERSON: a human, living or dead\n", encoding="utf-8")
    assert Settings.load(file=file).presidio_labels == ("PERSON=a human, living or dead",)
    assert Settings.load({"presidio_labels": "A=b,C=d e"}).presidio_labels == ("A=b", "C=d e")
    with pytest.raises(SettingsError, match="presidio_labels"):
        Settings.load({"presidio_labels": "PERSON"})


def test_every_label_of_presidios_names_is_distinct():
    assert len(set(PRESIDIO_LABELS.values())) == len(PRESIDIO_LABELS) > 90
    assert PRESIDIO_LABELS["ES_NIF"] == "Spanish national id number NIF"
    assert set(DEFAULT_ENTITIES) <= set(PRESIDIO_LABELS)


@pytest.mark.parametrize(("sent", "found"), [({}, 2), ({"score_threshold": 0}, 2), ({"score_threshold": 0.7}, 1)])
def test_a_threshold_can_raise_the_lowest_score(serving, sent, found):
    class Unsure(MemoryReplica):
        async def extract(self, items, call):
            self.calls.append((items, call))
            return [Extraction([Entity(0, 3, "Ada", "PERSON", 0.9), Entity(8, 15, "Charles", "PERSON", 0.5)])]

    model = Unsure()
    assert len(ask(serving(model), "/analyze", BODY | sent).json()) == found
    assert model.calls[0][0][0].threshold == 0.3, "overlaps are resolved before score_threshold applies"


def test_a_higher_threshold_never_adds_an_entity(serving):
    """The weak match of a phone number hides the model's date, also where the match is left out."""

    class Dates(MemoryReplica):
        async def extract(self, items, call):
            return [Extraction([Entity(5, 17, "030 1234 567", "DATE_TIME", 0.45)])]

    client = serving(Dates())
    body = BODY | {"text": "Tel. 030 1234 567", "entities": ["PHONE_NUMBER", "DATE_TIME"]}
    answers = [
        {
            (one["entity_type"], one["start"])
            for one in ask(client, "/analyze", body | {"score_threshold": score}).json()
        }
        for score in (0.3, 0.46, 0.8, 0.99)
    ]
    assert answers[0]
    assert all(higher <= lower for lower, higher in pairwise(answers))


@pytest.mark.parametrize(
    "allowed",
    [
        {"allow_list": ["Ada"]},
        {"allow_list": ["^a.a$", "nobody"], "allow_list_match": "regex"},
        {"allow_list": ["A d a # spaced"], "allow_list_match": "regex", "regex_flags": 64},
    ],
    ids=str,
)
def test_what_the_allow_list_has_is_no_finding(client, allowed):
    assert ask(client, "/analyze", BODY | allowed).json() == [CHARLES]


@pytest.mark.parametrize("pattern", ["(", "(?P<a>x)(?P<a", r"^(a|A|aa|aaa)+[^\w]$", "(?R)", "a{2000000000}"])
def test_a_pattern_cannot_stop_the_server(client, pattern):
    text = {"text": "A" + "a" * 60 + "!"}
    response = ask(client, "/analyze", BODY | text | {"allow_list": [pattern], "allow_list_match": "regex"})
    assert response.status_code == 400
    assert "allow_list" in response.json()["error"]


ZIP = {
    "name": "Zip recognizer",
    "supported_language": "en",
    "supported_entity": "ZIP",
    "patterns": [{"name": "zip", "regex": r"\b\d{5}\b", "score": 0.01}],
    "context": ["zip", "code"],
}


def analyzed(client, text, **more):
    body = {"text": text, "language": "en", "entities": [], **more}
    return [
        (one["entity_type"], text[one["start"] : one["end"]], round(one["score"], 2), one["recognition_metadata"])
        for one in ask(client, "/analyze", body).json()
    ]


def test_recognizers_of_a_request_run_with_their_context_and_deny_lists(client):
    by_zip = {"recognizer_name": "Zip recognizer"}
    assert analyzed(client, "zip 12345", ad_hoc_recognizers=[ZIP]) == [("ZIP", "12345", 0.4, by_zip)]
    assert analyzed(client, "box 12345", ad_hoc_recognizers=[ZIP]) == []
    assert analyzed(client, "box 12345", ad_hoc_recognizers=[ZIP], context=["code"])[0][:2] == ("ZIP", "12345")
    assert analyzed(client, "zip 12345", ad_hoc_recognizers=[ZIP | {"supported_language": "de"}]) == []
    assert analyzed(client, "zip 12345", ad_hoc_recognizers=[ZIP], entities=["PERSON"]) == []
    titles = {"name": "titles", "supported_entity": "TITLE", "deny_list": ["mr.", "mrs."]}
    assert analyzed(client, "for mr. x or mrsx", ad_hoc_recognizers=[titles])[0][:3] == ("TITLE", "mr.", 1.0)


@pytest.mark.parametrize("regex", ["(", r"^(a|A|aa|aaa)+[^\w]$", "(a|b)" * 2001, "(?R)", "a{9999999999}"])
def test_a_recognizer_of_a_request_cannot_stop_the_server(replica, serving, regex):
    client = serving(replica, dataclasses.replace(OPTIONS, max_body_bytes=10**5))
    patterns = {"patterns": [{"name": "p", "regex": regex, "score": 1.0}]}
    body = BODY | {"text": "a" * 60, "ad_hoc_recognizers": [ZIP | patterns], "entities": []}
    response = ask(client, "/analyze", body)
    assert response.status_code == 400
    assert "ad_hoc_recognizers.0.patterns.0.regex: " in response.json()["error"] or regex == "a{9999999999}"
    assert "ad_hoc_recognizers" in response.json()["error"]


def test_recognizers_of_a_request_share_their_limits(replica, serving):
    client = serving(replica, dataclasses.replace(OPTIONS, max_body_bytes=10**5))
    long = ZIP | {"patterns": [{"name": "p", "regex": "a" * 6000, "score": 1.0}]}
    for recognizers, status in (([long], 200), ([long, long], 400)):
        assert ask(client, "/analyze", BODY | {"ad_hoc_recognizers": recognizers, "entities": []}).status_code == status


def test_what_has_a_form_is_found_by_it(replica, serving):
    """Card, address, social security number and passport, which models take for each other."""
    client = serving(replica, changed(presidio_entities=(), max_labels=-1, max_text_chars=200))
    text = "my card is 4111 1111 1111 1111, my ip 192.168.0.1, my ssn 536-22-1234, passport X1234567"
    assert [one[:2] for one in analyzed(client, text)] == [
        ("CREDIT_CARD", "4111 1111 1111 1111"),
        ("IP_ADDRESS", "192.168.0.1"),
        ("US_SSN", "536-22-1234"),
        ("US_PASSPORT", "X1234567"),
    ]
    assert [one[0] for one in analyzed(client, text, entities=["US_SSN"])] == ["US_SSN"]
    assert [one[0] for one in analyzed(client, text, score_threshold=0.99)] == ["CREDIT_CARD", "US_SSN"]
    assert [one[0] for one in analyzed(client, text, allow_list=["536-22-1234"])][2] == "US_PASSPORT"
    without = serving(replica, dataclasses.replace(OPTIONS, recognizers=("none",), max_text_chars=200))
    assert {one[3]["recognizer_name"] for one in analyzed(without, text, entities=["URL"])} == {"GLiNERRecognizer"}


def test_a_match_is_explained_if_asked(client):
    text = "my ssn is 536-22-1234"
    body = {"text": text, "language": "en", "entities": ["US_SSN"], "return_decision_process": True}
    explanation = ask(client, "/analyze", body).json()[0]["analysis_explanation"]
    assert explanation["recognizer"] == "UsSsnRecognizer"
    assert (explanation["original_score"], explanation["score"]) == (0.5, 1.0)
    assert (explanation["supportive_context_word"], explanation["validation_result"]) == ("ssn", True)
    assert re.search(explanation["pattern"], text)[0] == "536-22-1234"


def test_patterns_have_a_limit_because_compiling_them_takes_time(replica, serving):
    client = serving(replica, dataclasses.replace(OPTIONS, max_body_bytes=10**6))
    response = ask(client, "/analyze", BODY | {"allow_list": ["(a|b)"] * 2000, "allow_list_match": "regex"})
    assert (response.status_code, response.json()["error"][:11]) == (400, "allow_list:")
    assert ask(client, "/analyze", BODY | {"allow_list": ["(a|b)"] * 2000}).status_code == 200


def test_a_finding_is_explained_if_asked(client):
    explanation = ask(client, "/analyze", BODY | {"return_decision_process": True}).json()[0]["analysis_explanation"]
    assert explanation["recognizer"] == "GLiNERRecognizer"
    assert explanation["textual_explanation"] == "Identified as person by a GLiNER model"
    assert (explanation["original_score"], explanation["pattern"]) == (1.0, None)


def test_a_correlation_id_is_the_requests_id_if_it_can_be_one(client, replica):
    ask(client, "/analyze", BODY | {"correlation_id": "trace-7"})
    ask(client, "/analyze", BODY | {"correlation_id": "no id"})
    ids = [call.request_id for _, call in replica.calls]
    assert "trace-7" in ids[0]
    assert "no id" not in ids[1]


def test_fields_of_its_documentation_are_ignored(client):
    assert ask(client, "/analyze", BODY | {"trace": "1", "context": ["name"]}).json() == [ADA, CHARLES]


@pytest.mark.parametrize(
    ("content", "status", "named"),
    [
        (b"{", 400, "JSON"),
        (b"", 400, "text"),
        (b"{}", 400, "language"),
        (b'{"text": "a"}', 400, "language"),
        (b'{"text": 5, "language": "en"}', 400, "text"),
        (b'{"text": "a", "language": "en", "score_threshold": 2}', 400, "score_threshold"),
        (b'{"text": "a", "language": "en", "entities": [""]}', 400, "entities"),
        (b'{"text": "a", "language": "en", "ad_hoc_recognizers": [{"name": "z"}]}', 400, "supported_entity"),
        (b'{"text": "a", "language": "en", "ad_hoc_recognizers": [{"supported_entity": "Z"}]}', 400, "0.patterns"),
        (b'{"text": "a", "language": "en", "entities": ["A", "a"]}', 200, None),
        (b'{"text": "a", "language": "en", "entities": ["1", "2", "3", "4", "5", "6"]}', 400, "max_labels"),
        (b'{"text": ["a", "a", "a", "a"], "language": "en"}', 413, "texts"),
        (b'{"text": "' + b"a" * 101 + b'", "language": "en"}', 413, "text"),
    ],
)
def test_errors_are_a_sentence_that_names_the_field(client, content, status, named):
    response = asyncio.run(client.post("/analyze", content=content, headers={"Content-Type": "application/json"}))
    assert response.status_code == status
    if named:
        assert list(response.json()) == ["error"]
        assert named in response.json()["error"]


def test_lists_of_names(client):
    assert {"PERSON", "ES_NIF"} <= set(ask(client, "/supportedentities", params={"language": "en"}).json())
    recognizers = ask(client, "/recognizers").json()
    assert recognizers[0] == "GLiNERRecognizer"
    assert {"CreditCardRecognizer", "IbanRecognizer", "UsSsnRecognizer", "PhoneRecognizer"} <= set(recognizers)
    assert ask(client, "/anonymizers").json() == ["hash", "keep", "mask", "redact", "replace"]


def test_the_calls_of_litellms_guardrail(client):
    """As sent by litellm 1.106.2 with pii_entities_config: what it sends, and what it reads."""
    analyzed = {"text": "Ada met Charles", "language": "en", "entities": ["PERSON", "EMAIL_ADDRESS"]}
    response = ask(client, "/analyze", analyzed, headers={"Accept": "application/json"})
    assert response.headers["content-type"] == "application/json"
    found = response.json()
    assert [(one["entity_type"], one["start"], one["end"]) for one in found] == [("PERSON", 0, 3), ("PERSON", 8, 15)]
    response = ask(client, "/anonymize", {"text": "Ada met Charles", "analyzer_results": found})
    assert response.headers["content-type"] == "application/json"
    assert response.json()["text"] == "<PERSON> met <PERSON>"
    assert {one["entity_type"] for one in response.json()["items"]} == {"PERSON"}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"text": "a"}', 422),
        (b'{"text": "a", "analyzer_results": [{"start": 0, "end": 5, "entity_type": "A", "score": 1}]}', 422),
        (b'{"text": "a", "analyzer_results": [{"start": 1, "end": 0, "entity_type": "A", "score": 1}]}', 422),
        (b'{"text": "a", "analyzer_results": [], "anonymizers": {"DEFAULT": {"type": "encrypt", "key": "k"}}}', 422),
        (b'{"text": "a", "analyzer_results": [], "anonymizers": {"DEFAULT": {"type": "mask"}}}', 422),
        (b'{"text": "a", "analyzer_results": [], "anonymizers": {"DEFAULT": {}}}', 422),
    ],
)
def test_errors_of_the_anonymizer(client, content, status):
    response = asyncio.run(client.post("/anonymize", content=content, headers={"Content-Type": "application/json"}))
    assert (response.status_code, list(response.json())) == (status, ["error"])


def test_a_result_has_a_limit(client):
    spans = [{"start": start, "end": start + 1, "entity_type": "A", "score": 1} for start in (0, 2)]
    body = {"text": "aaa", "analyzer_results": spans, "anonymizers": {"A": {"type": "replace", "new_value": "x" * 600}}}
    assert len(json.dumps(body)) < OPTIONS.max_body_bytes
    response = ask(client, "/anonymize", body)
    assert (response.status_code, "characters" in response.json()["error"]) == (413, True)


def test_a_custom_anonymizer_is_malformed_as_in_presidio(client):
    for anonymizers in ({"DEFAULT": {"type": "custom", "lambda": "x"}}, {"PERSON": {"type": "custom"}}):
        body = {"text": "Ada", "analyzer_results": [], "anonymizers": anonymizers}
        response = asyncio.run(client.post("/anonymize", json=body))
        assert (response.status_code, list(response.json())) == (400, ["error"])


@pytest.mark.parametrize(("flag", "explained"), [(0, False), (1, True), (True, True), (None, False)])
def test_the_decision_process_is_asked_for_by_any_truth_value(client, flag, explained):
    body = {"text": "ada@example.org", "language": "en", "return_decision_process": flag}
    (found,) = asyncio.run(client.post("/analyze", json=body)).json()
    assert bool(found["analysis_explanation"]) is explained
