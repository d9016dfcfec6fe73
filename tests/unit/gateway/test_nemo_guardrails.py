"""The GLiNER NIM's chat completion and the earlier server's routes, with the calls that NeMo Guardrails makes."""

from __future__ import annotations

import json

import pytest
from asking import ask_json as ask
from gateway_options import changed

SENT = {"threshold": 0.5, "chunk_length": 384, "overlap": 128, "flat_ner": False}
CHAT = {"model": "nvidia/gliner-pii", "messages": [{"role": "user", "content": "Ada met Charles"}], **SENT}
LEGACY = {"text": "Ada met Charles", **SENT}


def content_of(response):
    return json.loads(response.json()["choices"][0]["message"]["content"])


def test_the_call_of_the_rail_gets_a_chat_completion(client):
    """As sent by nemoguardrails 0.24.1 with entities configured."""
    response = ask(client, "/v1/chat/completions", CHAT | {"labels": ["name"]}, headers={"X-Request-ID": "mine"})
    answer = response.json()
    assert (answer["id"], answer["object"], answer["model"]) == ("chatcmpl-mine", "chat.completion", "memory")
    assert content_of(response) == {
        "entities": [
            {"start": 0, "end": 3, "text": "Ada", "label": "name", "score": 1.0},
            {"start": 8, "end": 15, "text": "Charles", "label": "name", "score": 1.0},
        ],
        "total_entities": 2,
        "tagged_text": "[Ada](name) met [Charles](name)",
    }


def test_the_call_of_the_rail_gets_the_earlier_servers_answer(client):
    answer = ask(client, "/nemo/v1/extract", LEGACY | {"labels": ["name"]}).json()
    first = {"value": "Ada", "suggested_label": "name", "start_position": 0, "end_position": 3, "score": 1.0}
    assert (answer["entities"][0], answer["total_entities"]) == (first, 2)
    assert answer["tagged_text"] == "[Ada](name) met [Charles](name)"


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/nemo/v1/extract", LEGACY)])
def test_spans_never_overlap_and_labels_have_a_default(client, replica, options, path, body):
    ask(client, path, body)
    (item,) = replica.calls[0][0]
    assert (item.flat_ner, tuple(item.labels)) == (True, ("first_name",)), "recognizers find e-mail addresses"
    assert dict(item.recognizers) == {"EMAIL_ADDRESS": "email"}


def test_default_labels_with_a_form_are_left_to_recognizers(replica, serving, options):
    labels = ("name", "date_of_birth", "ssn", "ipv4", "credit_debit_card")
    client = serving(replica, changed(options, nemo_labels=labels))
    text = "ada, born 10 Dec 1815, ssn 536-22-1234, ip 10.0.0.1, not ::1"
    answer = ask(client, "/nemo/v1/extract", {"text": text}).json()
    assert tuple(replica.calls[0][0][0].labels) == ("name",)
    tagged = "ada, born [10 Dec 1815](date_of_birth), ssn [536-22-1234](ssn), ip [10.0.0.1](ipv4), not ::1"
    assert answer["tagged_text"] == tagged
    ask(client, "/nemo/v1/extract", {"text": text, "labels": ["ssn"]})
    assert tuple(replica.calls[1][0][0].labels) == ("ssn",), "the request names it"
    without = serving(replica, changed(options, nemo_labels=labels, recognizers=("none",)))
    ask(without, "/nemo/v1/extract", {"text": text})
    assert tuple(replica.calls[2][0][0].labels) == labels


def test_the_text_is_the_last_message_in_parts_or_not(client, replica):
    parts = [{"type": "text", "text": "Ada "}, {"type": "text", "text": "Byron"}]
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": parts}]
    ask(client, "/v1/chat/completions", CHAT | {"messages": messages, "temperature": 0, "batch_size": 8})
    assert replica.calls[0][0][0].text == "Ada Byron"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("jailbreak jailbreak benign jailbreak", {"jailbreak": True, "score": 0.5}),
        ("benign jailbreak benign benign", {"jailbreak": False, "score": -0.5}),
        ("jailbreak benign", {"jailbreak": False, "score": 0.0}),
        ("", {"jailbreak": False, "score": -1.0}),
    ],
)
def test_the_detection_of_jailbreaks_gets_the_share_of_the_first_label(client, replica, prompt, expected):
    assert ask(client, "/v1/classify", {"input": prompt}).json() == expected  # a label's score is its share of words
    (asked,) = replica.calls[0][0][0].classifications.values()
    assert (asked.merge, asked.multi_label, list(asked.labels)) == ("max", False, ["jailbreak", "benign"])


def test_what_is_served_is_listed(client, options):
    (model,) = ask(client, "/v1/models").json()["data"]
    assert {"id", "object", "created", "owned_by", "revision", "model_name"} <= set(model)
    assert ask(client, "/nemo/v1/models").json()["data"] == [model]
    labels = ask(client, "/nemo/v1/labels").json()
    assert (tuple(labels["labels"]), labels["count"]) == (options.formats["nemo_labels"], 2)
    health = ask(client, "/nemo/health").json()
    assert (health["status"], health["model_name"], health["default_labels_count"]) == ("healthy", "memory", 2)


@pytest.mark.parametrize(
    ("change", "status", "named"),
    [
        ({"messages": []}, 422, "messages"),
        ({"messages": [{"role": "user"}]}, 422, "content"),
        ({"messages": "Ada"}, 422, "messages"),
        ({"stream": True}, 422, "stream"),
        ({"labels": "name"}, 422, "labels"),
        ({"threshold": 2}, 422, "threshold"),
        ({"chunk_length": 0}, 422, "chunk_length"),
        ({"overlap": -1}, 422, "overlap"),
        ({"overlap": 384}, 422, "overlap"),
        ({"messages": [{"role": "user", "content": "a" * 101}]}, 413, "text"),
    ],
    ids=str,
)
def test_errors_are_fastapis_with_one_sentence(client, change, status, named):
    response = ask(client, "/v1/chat/completions", CHAT | change)
    assert (response.status_code, list(response.json())) == (status, ["detail"])
    assert named in response.json()["detail"]
