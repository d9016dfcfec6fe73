"""`allow_list` and `deny_list`: what is never found, and what always is, whoever has the list."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from hashlib import sha256

import pytest
from gateway_options import OPTIONS
from test_recognizers_of_requests import Scripted

from gliner_bento.privacy import known_values
from gliner_bento.privacy.recognizers.expressions import MAX_MATCHES

MAIL = "ada@example.org"
TEXT = f"Ada Ng of Blue Bird, {MAIL}"
MODEL = ("Ada Ng", "person"), ("Blue Bird", "company")
BODY = {"text": TEXT, "labels": ["person", "company"]}
VALUE = {"value": "blue bird", "label": "project"}
PATTERN = {"pattern": "b[a-z]+ b[a-z]+", "label": "project"}


@pytest.fixture
def ask(serving):
    """Sends a body to the server of a replica, which has one process for patterns."""
    clients = {}

    def send(replica, body, path="/v1/extract", key="", **options):
        place = (id(replica), *options)
        if place not in clients:
            clients[place] = replica, serving(replica, dataclasses.replace(OPTIONS, max_body_bytes=2**20, **options))
        headers = {"X-API-Key": key} if key else {}
        return asyncio.run(clients[place][1].post(path, json=body, headers=headers))

    return send


def found(response):
    assert response.status_code == 200, response.text
    return [(one["text"], one["label"]) for one in response.json()["entities"]]


@pytest.mark.parametrize(
    ("allowed", "left"),
    [
        (["ada  ng"], ["Blue Bird"]),
        ([{"value": "ADA NG", "case_sensitive": True}], ["Ada Ng", "Blue Bird"]),
        ([{"value": "Ada Ng of Blue Bird"}], []),
        (["Ada", "Blue"], ["Ada Ng", "Blue Bird"]),
        ([{"pattern": "(?<=of )b.*(?=,)"}], ["Ada Ng"]),
        ([{"pattern": "blue bird", "case_sensitive": True}], ["Ada Ng", "Blue Bird"]),
        ([], ["Ada Ng", "Blue Bird"]),
    ],
)
def test_what_is_inside_an_allowed_text_is_no_find(ask, allowed, left):
    """And what reaches beyond it is one."""
    body, model = {**BODY, "allow_list": allowed}, Scripted(*MODEL)
    assert [text for text, _ in found(ask(model, body))] == left
    lines = ask(model, body, "/v1/extract/stream").text.splitlines()
    assert [json.loads(line)["entity"]["text"] for line in lines[:-1]] == left


@pytest.mark.parametrize(
    "denied", [[PATTERN], [{"value": "blue bird", "label": "project"}], {"project": ["BLUE BIRD"]}]
)
@pytest.mark.parametrize("options", [{}, {"allow_list": ["Blue Bird"]}, {"recognizers": True, "threshold": 1.0}])
def test_a_denied_text_is_always_found_with_its_label(ask, denied, options):
    """Whatever the model finds there, and whatever is allowed."""
    body = {**BODY, "deny_list": denied, **options}
    expected = {"start": 10, "end": 19, "text": "Blue Bird", "label": "project", "score": 1.0, "source": "pattern"}
    for replica in (Scripted(*MODEL), Scripted(("Ng of Blue", "person")), Scripted()):
        entities = ask(replica, body).json()["entities"]
        assert [one for one in entities if one["end"] > 10 and one["start"] < 19] == [expected]
        lines = ask(replica, body, "/v1/extract/stream").text.splitlines()
        assert [json.loads(line)["entity"] for line in lines[:-1]] == entities
    alone = ask(replica, {"labels": None, "text": TEXT, "deny_list": denied})
    assert alone.json()["entities"] == [expected], "without labels, no model is asked"


def test_recognizers_find_what_an_allowed_text_does_not_hide(ask):
    body = {**BODY, "labels": [], "recognizers": ["EMAIL_ADDRESS", "URL"]}
    url = {**body, "text": f"https://x.org/?{MAIL} {MAIL}", "allow_list": [MAIL]}
    assert found(ask(Scripted(), body)) == [(MAIL, "EMAIL_ADDRESS")]
    assert found(ask(Scripted(), url)) == [(f"https://x.org/?{MAIL}", "URL")]
    assert found(ask(Scripted(), {**body, "allow_list": [MAIL], "deny_list": [MAIL]})) == [(MAIL, "sensitive")]


def test_a_decoy_does_not_hide_what_is_denied(ask):
    labels = {"person": {"returned": False}, "company": {}}
    body = {**BODY, "labels": labels, "deny_list": [{"value": "Ng", "label": "person"}]}
    assert found(ask(Scripted(*MODEL), body)) == [("Ng", "person"), ("Blue Bird", "company")]


def test_each_text_of_a_batch_may_have_lists_of_its_own(serving):
    items = [{"text": TEXT}, {"text": TEXT, "allow_list": ["Ada Ng"]}, {"text": TEXT, "deny_list": [{"pattern": "("}]}]
    client = serving(Scripted(*MODEL))
    body = {"labels": ["person", "company"], "items": items, "allow_list": ["blue bird"]}
    one, two, three = asyncio.run(client.post("/v1/extract/batch", json=body)).json()["results"]
    assert [len(each["result"]["entities"]) for each in (one, two)] == [1, 1]
    assert one["result"]["entities"][0]["text"] == "Ada Ng"
    assert two["result"]["entities"][0]["text"] == "Blue Bird"
    assert three["error"]["param"] == "items.2.deny_list.0.pattern"


def test_all_texts_of_a_request_share_the_limit_of_comparisons(ask, monkeypatch):
    monkeypatch.setattr(known_values, "_MAX_COMPARISONS", 100)
    text, lists = "ada " * 12, {"deny_list": ["ada"], "allow_list": ["bob"]}
    redact, batch = ("/v1/redact", {"labels": ["person"], **lists}), ("/v1/extract/batch", {"labels": ["person"]})
    for (path, body), field in ((redact, "texts"), (batch, "items")):
        of_text = text if field == "texts" else {"text": text, **lists}
        assert ask(Scripted(), {**body, field: [of_text]}, path).status_code == 200
        refused = ask(Scripted(), {**body, field: [of_text] * 3}, path)
        assert "of lists or of what was found, or words that begin one, are in it too often" in refused.text


@pytest.mark.parametrize(
    ("lists", "param"),
    [
        ({"allow_list": "Ada"}, "allow_list"),
        ({"allow_list": [" "]}, "allow_list.0"),
        ({"allow_list": ["a", {"value": "++"}]}, "allow_list.1.value"),
        ({"allow_list": [{}]}, "allow_list.0.value"),
        ({"allow_list": [{"value": "a", "pattern": "b"}]}, "allow_list.0.value"),
        ({"allow_list": [{"value": "a", "label": "b"}]}, "allow_list.0.label"),
        ({"allow_list": ["a"] * 1001}, "allow_list"),
        ({"deny_list": {"a": ["b"] * 600, "c": ["d"] * 600}}, "deny_list"),
        ({"deny_list": {"kind": ["a", {"pattern": "("}]}}, "deny_list.kind.1.pattern"),
        ({"deny_list": [{"pattern": "(?R)"}]}, "deny_list.0.pattern"),
        ({"allow_list": [{"pattern": "a" * 1000}] * 11}, "allow_list.10.pattern"),
    ],
)
def test_a_wrong_entry_is_named_and_no_model_is_asked(ask, lists, param):
    replica = Scripted(*MODEL)
    for path in ("/v1/extract", "/v1/redact"):
        response = ask(replica, {**lists, "labels": ["person"], "text": TEXT}, path)
        assert (response.status_code, response.json()["error"]["param"]) == (422, param)
        assert TEXT not in response.text
    (line,) = ask(replica, {**lists, "labels": ["person"], "text": TEXT}, "/v1/extract/stream").text.splitlines()
    assert json.loads(line)["error"]["param"] == param
    assert not replica.calls


@pytest.mark.parametrize(("deny_list", "place"), [([5], "0"), (["a", None], "1"), ({"p": [["a"]]}, "p.0")])
def test_an_entry_that_is_neither_a_text_nor_an_object_is_named(ask, deny_list, place):
    error = ask(Scripted(), {"text": TEXT, "labels": ["person"], "deny_list": deny_list}).json()["error"]
    assert error["message"] == f"deny_list.{place}: Input should be a text, or an object with a value or a pattern"


def test_a_pattern_of_the_server_that_matches_too_often_is_no_fault_of_the_request(ask):
    replica, options = Scripted(*MODEL), {"deny_list": json.dumps([{"pattern": "a", "label": "letter"}])}
    body = {**BODY, "text": "a" * (MAX_MATCHES + 1), "allow_list": ["b"]}
    refused = ask(replica, body, max_text_chars=MAX_MATCHES + 1, **options)
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("limit_exceeded", "text")
    assert "a pattern of the server's lists" in error["message"]
    assert not replica.calls


def test_redacted_texts_keep_what_is_allowed_as_a_whole(ask):
    """Also where a part of it was found elsewhere."""
    texts = ["Ada Ng Institute", "Ada Ng"]
    body = {"text": None, "texts": texts, "labels": ["person"], "allow_list": [{"pattern": "[a-z ]+ institute"}]}
    answer = ask(Scripted(("Ada Ng", "person")), body, "/v1/redact")
    assert answer.json()["texts"] == ["Ada Ng Institute", "[PERSON_1]"]
    denied = {**body, "deny_list": [{"pattern": "^ada ng", "label": "name"}, "person"], "texts": [*texts, "[PERSON_7]"]}
    mapped = ask(Scripted(), denied, "/v1/redact")
    assert mapped.json()["texts"][:2] == ["[NAME_1] Institute", "[NAME_1]"]


KEYS = [
    {"name": name, "sha256": sha256(name.encode()).hexdigest(), **lists}
    for name, lists in (("a", {"allow_list": ["Ada Ng"], "deny_list": {"code": [{"pattern": "of"}]}}), ("b", {}))
]
OPERATOR = {
    "allow_list": '["blue bird"]',
    "deny_list": json.dumps([{"value": MAIL, "label": "mail"}]),
    "api_keys": json.dumps(KEYS),
}
OF_A = [("of", "code"), (MAIL, "mail")]


def test_the_lists_of_request_key_and_server_add_up_and_what_any_of_them_denies_is_found(ask):
    own = {"deny_list": ["Ada"], "allow_list": [MAIL, "of"]}
    model = Scripted(*MODEL)
    assert found(ask(model, BODY, key="a", **OPERATOR)) == OF_A
    assert found(ask(model, BODY, key="b", **OPERATOR)) == [("Ada Ng", "person"), (MAIL, "mail")]
    assert found(ask(model, BODY | own, key="a", **OPERATOR)) == [("Ada", "sensitive"), *OF_A]
    redacted = ask(model, {"text": TEXT} | own, "/v1/redact", key="a", **OPERATOR).json()
    assert redacted["texts"] == ["[SENSITIVE_1] Ng [CODE_1] Blue Bird, [MAIL_1]"]


def test_what_asks_for_no_entities_gets_none(ask):
    body = {"text": TEXT, "classifications": {"tone": ["good", "bad"]}}
    assert found(ask(Scripted(), body, key="a", **OPERATOR)) == []


def test_other_servers_formats_have_the_operators_lists_too(ask):
    model, schema = Scripted(("Ada Ng", "person"), ("Blue Bird", "person")), {"entities": ["person"]}

    def answer(path, body):
        response = ask(model, body, path, key="a", **OPERATOR)
        assert response.status_code == 200, response.text
        return response.json()

    analyzed = {"text": TEXT, "language": "en", "entities": ["PERSON", "EMAIL_ADDRESS"], "allow_list": ["of", "x"]}
    results = answer("/analyze", {**analyzed, "return_decision_process": True})
    assert [(TEXT[one["start"] : one["end"]], one["entity_type"], one["score"]) for one in results] == [
        ("of", "code", 1.0),
        (MAIL, "mail", 1.0),
    ]
    assert results[0]["analysis_explanation"]["recognizer"] == "DenyListRecognizer"
    grouped = {"person": [], "code": ["of"], "mail": [MAIL]}
    fastino = answer("/gliner-2", {"task": "schema", "text": TEXT, "schema": schema, "threshold": 0.5})
    assert fastino["result"]["entities"] == grouped
    pooled = answer("/pooling", {"model": "x", "data": {"text": TEXT, "schema": schema}})
    assert pooled["data"]["entities"] == grouped
    params = {"block": ["code"]}
    request = {"input_type": "request", "texts": [TEXT], "additional_provider_specific_params": params}
    assert answer("/beta/litellm_basic_guardrail_api", request)["action"] == "BLOCKED"
    request["additional_provider_specific_params"] = {
        "allow_list": ["x"],
        "deny_list": {"bird": [{"pattern": "b.*rd"}]},
    }
    guarded = answer("/beta/litellm_basic_guardrail_api", request)
    assert guarded["texts"] == ["Ada Ng [CODE_1] [BIRD_1], [MAIL_1]"]
