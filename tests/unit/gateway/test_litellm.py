"""LiteLLM's Generic Guardrail API, with requests as its class `GenericGuardrailAPI` sends them."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from test_recognizers_of_requests import Scripted

from gliner_bento.errors import InternalError
from gliner_bento.gateway.compat import litellm
from gliner_bento.gateway.compat.litellm import _Pieces
from gliner_bento.gateway.waiting_mappings import MappingsInMemory
from gliner_bento.privacy.json_texts import changed_json
from gliner_bento.privacy.recognizers.labels import entities_of
from gliner_bento.tasks.extraction import Entity, Extraction

FOUND = ("Ada Ng", "person"), ("Bob Ek", "person")
CARD = "4111 1111 1111 1111"
LARGE = dataclasses.replace(OPTIONS, max_body_bytes=2**20, max_batch_items=20, max_labels=10, max_text_chars=2000)
ENVELOPE = {
    "litellm_call_id": "call-1",
    "litellm_trace_id": "trace-1",
    "structured_messages": None,
    "images": None,
    "tools": None,
    "texts": None,
    "request_data": {"user_api_key_hash": "88dc28d0", "user_api_key_alias": None, "user_api_key_team_id": "t"},
    "request_headers": {"user-agent": "OpenAI/Python", "x-custom": "[present]"},
    "litellm_version": "1.110.2",
    "additional_provider_specific_params": {},
    "tool_calls": None,
    "model": "gpt-5",
}


@pytest.fixture
def guard(serving):
    """Makes a function that sends requests to one server; it returns the answers' JSON."""

    def serve(replica=None, options=LARGE):
        client = serving(replica or Scripted(*FOUND), options)

        def send(input_type, status=200, params=None, **fields):
            body = {**ENVELOPE, "input_type": input_type, **fields}
            body["additional_provider_specific_params"] = params or {}
            response = asyncio.run(client.post("/beta/litellm_basic_guardrail_api", json=body))
            assert response.status_code == status, response.text
            return response.json()

        return send

    return serve


def call_of(arguments, name="find"):
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_request_is_redacted_and_its_response_restored(guard):
    send = guard()
    rows = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Ada Ng pays with {CARD}"}]
    answer = send("request", texts=[row["content"] for row in rows], structured_messages=rows)
    assert answer["action"] == "GUARDRAIL_INTERVENED"
    assert answer["texts"] == ["Be brief.", "[PERSON_1] pays with [CREDIT_CARD_1]"]
    assert answer["structured_messages"] is answer["tools"] is None, "texts say everything"
    restored = send("response", texts=["Dear **[Person 1]**,", '{"card": "[CREDIT_CARD_1]"}'])
    assert restored["texts"] == ["Dear **Ada Ng**,", json.dumps({"card": CARD})]
    for texts in (["nothing here"], [" "]):
        assert send("request", texts=texts)["action"] == "NONE"


def test_a_response_is_restored_to_no_more_than_a_body_may_have(guard):
    name = "A" * 400
    send = guard(Scripted((name, "person")), dataclasses.replace(LARGE, max_body_bytes=2500))
    assert send("request", texts=[name])["texts"] == ["[PERSON_1]"]
    assert send("response", texts=["[PERSON_1] " * 5])["texts"] == [f"{name} " * 5]
    error = send("response", texts=["[PERSON_1] " * 20], status=413)["error"]
    assert (error["code"], "max_body_bytes" in error["message"]) == ("too_large", True)


def test_content_parts_tool_calls_and_tools_are_redacted_and_stay_json(guard):
    send = guard()
    arguments = '{"who": "Ada Ng", "card": 4111111111111111, "Ada Ng": [1, "\\u0041da Ng"], "count": 3}'
    call = call_of(arguments)
    rows = [
        {"role": "user", "name": "Bob Ek", "content": [{"type": "text", "text": "I am Ada Ng"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "Ada Ng", "content": "Bob Ek"},
    ]
    parameters = {"type": "object", "properties": {"name": {"type": "string", "description": "As Bob Ek"}}}
    tools = [{"type": "function", "function": {"name": "find", "parameters": parameters}}]
    answer = send("request", texts=["I am Ada Ng", "Bob Ek"], structured_messages=rows, tool_calls=[call], tools=tools)
    assert "Ada Ng" not in json.dumps(answer).replace('"name": "Ada Ng"', ""), "but for the name of a tool"
    assert "Bob Ek" not in json.dumps(answer)
    user, assistant, tool = answer["structured_messages"]
    assert user["content"] == [{"type": "text", "text": answer["texts"][0]}]
    assert (tool["name"], tool["tool_call_id"]) == ("Ada Ng", "c1")
    function = assistant["tool_calls"][0]["function"]
    redacted = json.loads(function["arguments"])
    person = redacted["who"]
    assert person == answer["texts"][0].removeprefix("I am ")
    assert redacted == {"who": person, "card": "[CREDIT_CARD_1]", person: [1, person], "count": 3}
    assert answer["tools"][0]["function"]["parameters"]["properties"]["name"]["description"].startswith("As [PERSON_")
    restored = send("response", texts=None, tool_calls=[call_of(function["arguments"])])
    back = json.loads(restored["tool_calls"][0]["function"]["arguments"])
    assert back == {"who": "Ada Ng", "card": "4111111111111111", "Ada Ng": [1, "Ada Ng"], "count": 3}


def test_tool_calls_that_no_row_has_block(guard):
    answer = guard()("request", texts=["x"], tool_calls=[call_of('{"who": "Ada Ng"}')])
    assert (answer["action"], answer["texts"]) == ("BLOCKED", None)
    assert "Ada" not in answer["blocked_reason"]


@pytest.mark.parametrize("calls", [5, True, "x", {"a": 1}, [1], None])
def test_rows_may_have_any_value_as_tool_calls(guard, calls):
    answer = guard()("request", texts=["Ada Ng"], structured_messages=[{"role": "assistant", "tool_calls": calls}])
    assert answer["texts"] == ["[PERSON_1]"]


def test_fields_whose_names_become_one_are_refused(guard):
    calls = [call_of('{"Ada Ng": 1, "ADA NG": 2}')]
    send = guard(Scripted(*FOUND, ("ADA NG", "person")))
    refused = send("request", status=422, tool_calls=calls, structured_messages=[{"tool_calls": calls}])
    assert refused["error"]["code"] == "invalid_field"


def test_finds_are_divided_among_many_short_values_in_one_pass():
    class Entities(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return super().__iter__()

    pieces, values = _Pieces(), ["Ada Ng", "", "Bob Ek", "and Ada"]
    for value in values:
        pieces(value, "a")
    (document,) = pieces.documents
    assert document == "a: Ada Ng\na: \na: Bob Ek\na: and Ada"
    found = Entities(
        Entity(start, end, document[start:end], "person", 0.9) for start, end in ((3, 9), (7, 23), (17, 23), (31, 34))
    )
    texts = [[entity.text for entity in one.entities] for one in pieces.found([Extraction(found)])]
    assert texts == [["Ada Ng", "Ng"], [""], ["Bob Ek", "Bob Ek"], ["Ada"]]
    assert found.passes == 1


def test_what_many_labels_of_block_mean_is_found_once(guard, monkeypatch):
    looked_up = []
    monkeypatch.setattr(litellm, "entities_of", lambda label: looked_up.append(label) or entities_of(label))
    assert guard()("request", texts=["Ada Ng"], params={"block": ["card"] * 1000})["texts"] == ["[PERSON_1]"]
    assert len(looked_up) < 2000


def test_a_conversation_keeps_its_placeholders(guard):
    send = guard()
    first = send("request", texts=["Bob Ek"])
    second = send("request", texts=["Bob Ek", "[PERSON_1] met Ada Ng"], litellm_call_id="call-2")
    assert second["texts"] == ["[PERSON_1]", "[PERSON_1] met [PERSON_2]"]
    assert first["texts"] == ["[PERSON_1]"]
    again = send("request", texts=second["texts"], litellm_call_id="call-2")
    assert again["action"] == "NONE", "the guardrail may be called twice for a call"
    assert send("response", texts=["[PERSON_2]"], litellm_call_id="call-2")["texts"] == ["Ada Ng"]
    assert send("response", texts=["[PERSON_2]"], litellm_call_id="other")["texts"] == ["Ada Ng"], "by the trace"


def test_another_caller_does_not_get_the_originals(guard):
    send = guard()
    send("request", texts=["Ada Ng"])
    answer = send("response", texts=["[PERSON_1]"], request_data={"user_api_key_hash": "another"})
    assert (answer["action"], answer["texts"]) == ("NONE", None)
    assert send("response", texts=["[PERSON_1]"], litellm_call_id="x", litellm_trace_id="x")["action"] == "NONE"


@pytest.mark.parametrize("placeholder", ["[PERSON_1]", "PERSON_1", "\\[PERSON\\_1\\]"])
def test_a_stream_shows_no_half_placeholder(guard, placeholder):
    send = guard()
    send("request", texts=["Ada Ng"])
    text, shown = f"Dear {placeholder}, hello", ""
    for end in range(1, len(text) + 1):
        answer = send("response", texts=[text[:end]])
        so_far = (answer["texts"] or [text[:end]])[0]
        held = (answer["stream_holdback_chars"] or [0])[0]
        shown += so_far[len(shown) : len(so_far) - held]
        assert "Dear Ada Ng, hello".startswith(shown)
    assert so_far == "Dear Ada Ng, hello"


def test_kinds_that_block(guard):
    send = guard()
    params = {"block": ["credit card number", "project"], "deny_list": {"project": ["Bluebird"]}}
    for text, kind in ((f"Ada Ng: {CARD}", "credit card number"), ("about bluebird", "project")):
        answer = send("request", texts=[text], params=params)
        assert (answer["action"], answer["texts"]) == ("BLOCKED", None)
        assert kind in answer["blocked_reason"]
        assert text not in answer["blocked_reason"]
    assert send("request", texts=["Ada Ng"], params=params)["action"] == "GUARDRAIL_INTERVENED"
    for found in ({"labels": ["card"]}, {"recognizers": {"CREDIT_CARD": "card"}}):
        named = send("request", texts=[CARD], params={"block": ["card"], **found})
        assert named["action"] == "BLOCKED"
    allowed = send("request", texts=[CARD], params={"block": ["credit card number"], "allow_list": [CARD]})
    assert allowed["action"] == "NONE"


def test_a_denied_kind_blocks_inside_anything_but_a_placeholder(guard):
    send = guard()
    params = {"deny_list": {"project": ["bluebird"], "host": ["bluebird@example.com"], "word": ["person"]}}
    for blocked in ("project", "host"):
        answer = send("request", texts=["mail bluebird@example.com"], params={"block": [blocked], **params})
        assert (answer["action"], answer["texts"]) == ("BLOCKED", None)
        assert f"sent: {blocked}." in answer["blocked_reason"]
    params["block"] = ["word"]
    assert send("request", texts=["Ada Ng"], params=params)["action"] == "GUARDRAIL_INTERVENED"
    assert send("request", texts=["[PERSON_1]"], params=params)["action"] == "NONE"
    assert send("request", texts=["a person"], params=params)["action"] == "BLOCKED"


def test_what_is_not_replaced_does_not_block(guard):
    send = guard(Scripted(("two days", "date"), ("May 3", "date")))
    actions = [send("request", texts=[text], params={"block": ["date"]})["action"] for text in ("two days", "May 3")]
    assert actions == ["NONE", "BLOCKED"]
    own = send("request", texts=["two days"], params={"block": ["date"], "labels": ["date"]})
    assert own["action"] == "BLOCKED", "labels of the request have no checks"


def test_images_pass_or_block(guard):
    send = guard()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QWRhIE5n"}}
    rows = [{"role": "user", "content": [{"type": "text", "text": "Ada Ng"}, image]}]
    passed = send("request", texts=["Ada Ng"], structured_messages=rows, images=["data:image/png;base64,QWRhIE5n"])
    assert passed["texts"] == ["[PERSON_1]"]
    for fields in ({"images": ["http://host/a.png"]}, {"structured_messages": rows}):
        assert send("request", texts=["hello"], params={"images": "block"}, **fields)["action"] == "BLOCKED"
    nested = [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image", "source": {}}]}]}]
    assert send("request", structured_messages=nested, params={"images": "block"})["action"] == "BLOCKED"
    text = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert send("request", structured_messages=text, params={"images": "block"})["action"] == "NONE"


def test_native_rows_are_read_whole(guard):
    use = {"type": "tool_use", "id": "t", "name": "find", "input": {"who": "Ada Ng", "file": "Bob Ek.txt"}}
    rows = [
        {"role": "assistant", "content": [use], "reasoning_content": "Ada Ng is a person", "extra": {"name": "Bob Ek"}}
    ]
    answer = guard()("request", structured_messages=rows)
    (row,) = answer["structured_messages"]
    assert "Ada Ng" not in json.dumps(row)
    assert "Bob Ek" not in json.dumps(row)
    assert (row["content"][0]["name"], row["role"]) == ("find", "assistant")


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (422, {"params": {"bloc": ["person"]}}),
        (422, {"params": {"block": ["unknown kind"]}}),
        (422, {"params": {"images": "maybe"}}),
        (422, {"texts": [1]}),
        (413, {"texts": ["a", "x" * 2001]}),
        (422, {"structured_messages": [json.loads('{"a":' * 60 + '"Ada Ng"' + "}" * 60)]}),
        (422, {"structured_messages": [{"a": json.loads("[" * 60 + '"Ada Ng"' + "]" * 60)}]}),
        (422, {"structured_messages": [{"tool_calls": [call_of("[" * 60 + '"Ada Ng"' + "]" * 60)]}]}),
    ],
)
def test_what_is_wrong_is_an_error_without_any_text(guard, status, fields):
    assert [*guard()("request", status=status, **fields)] == ["error"]


def test_a_text_that_fails_fails_the_request(guard):
    replica = MemoryReplica(error=lambda item: InternalError("broken") if "Bob" in item.text else None)
    assert [*guard(replica)("request", status=500, texts=["Ada Ng", "Bob"])] == ["error"]
    small = guard(options=dataclasses.replace(LARGE, max_mapping_bytes=40))
    assert [*small("request", status=413, texts=["Ada Ng"])] == ["error"]


def test_waiting_mappings_expire_and_are_bounded():
    now = [0.0]
    waiting = MappingsInMemory(2000, 10, lambda: now[0])

    def put(key, sealed):
        asyncio.run(waiting.put([key], sealed))

    def get(*keys):
        return asyncio.run(waiting.get(keys))

    put(b"a", "x" * 300)
    put(b"b", "y" * 300)
    assert get(b"a") == ["x" * 300]
    put(b"c", "z" * 300)
    assert get(b"b", b"a") == ["x" * 300], "the least recently used one goes"
    put(b"d", "w" * 3000)
    assert get(b"d") == []
    put(b"e", "v")
    now[0] = 10.0
    assert get(b"e") == []


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ('{"a": "b"}', '{"a": "<b>"}'),
        ('{"a": "b", "a": "c"}', '<{"a": "b", "a": "c"}>'),
        ("4155550123", '"<4155550123>"'),
        ('{"a": 12345, "b": true, "c": null}', '{"a": 12345, "b": true, "c": null}'),
        ('{"a": "b', '<{"a": "b>'),
        ('"\\ud800"', '"<\ufffd>"'),
    ],
)
def test_json_stays_json(text, changed):
    assert changed_json(text, lambda found, _name: f"<{found}>") == changed
