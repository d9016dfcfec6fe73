"""`POST /mcp`, called by mcp's own client."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
from hashlib import sha256

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from jsonschema import Draft202012Validator, validate
from test_recognizers_of_requests import Scripted

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.mcp.tools import TOOLS
from gliner_bento.privacy.sealing import Sealer
from gliner_bento.settings import Settings, SettingsError

TEXT = "Ada met Charles"
SEALER = Sealer(
    [OPTIONS.redaction_key.get_secret_value().encode()],
    max_bytes=OPTIONS.max_mapping_bytes,
    lifetime_s=OPTIONS.mapping_lifetime_s,
)
SEALED = SEALER.seal("", {"[FULL_NAME_1]": "Ada", "[FULL_NAME_2]": "Charles"})
CALLS = {
    "extract_entities": {"text": TEXT, "labels": ["person"], "threshold": 0.3},
    "extract_relations": {"text": TEXT, "labels": {"person": "a human"}, "relations": ["met"]},
    "classify": {"text": "yes no yes", "labels": ["no", "yes"]},
    "extract_structures": {"text": TEXT, "structures": {"meeting": ["person", "place"]}},
    "redact": {"text": TEXT, "labels": ["full name"]},
    "restore": {"text": "[FULL_NAME_2] has met [Full name 1].", "mapping": SEALED},
}
LISTING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}
KEYS = json.dumps(
    [
        {
            "name": "reader",
            "sha256": sha256(b"reader").hexdigest(),
            "scopes": ["extract"],
            "tenant": "t",
            "max_requests_per_s": 1000,
        },
        {"name": "observer", "sha256": sha256(b"observer").hexdigest(), "scopes": ["metrics"]},
    ]
)


@pytest.fixture
def served():
    """Makes an app with `/mcp`."""
    pytest.importorskip("mcp.server.lowlevel", reason="mcp is not installed")

    def make(replica, **options):
        app = GatewayApp(dataclasses.replace(OPTIONS, enable_mcp=True, **options))
        app.bind(replica)
        return app

    return make


def asked(app, questions, mode="auto", headers=None, host="localhost"):
    """What `questions(client)` returns, with a client of mcp that is connected to the app."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def connected():
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, headers=headers) as http_client:
            url = f"http://{host}:3000/mcp"
            async with Client(streamable_http_client(url, http_client=http_client), mode=mode) as client:
                return await questions(client)

    return asyncio.run(connected())


def called(app, name, arguments, **options):
    return asked(app, lambda client: client.call_tool(name, arguments), **options)


def posted(app, **options):
    """The raw response to a message."""
    import httpx2

    async def post():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            return await client.post(
                "/mcp", **{"json": LISTING, **options, "headers": ACCEPT | options.get("headers", {})}
            )

    return asyncio.run(post())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_client_lists_and_calls_every_tool(served, mode):
    async def questions(client):
        listed = (await client.list_tools()).tools
        results = {tool.name: await client.call_tool(tool.name, CALLS[tool.name]) for tool in listed}
        return listed, results

    listed, results = asked(served(MemoryReplica()), questions, mode)
    assert [tool.name for tool in listed] == list(CALLS)
    for tool in listed:
        assert tool.annotations.read_only_hint
        validate(CALLS[tool.name], tool.input_schema)
        assert "model" not in tool.input_schema["properties"]  # there is one
        validate(results[tool.name].structured_content, tool.output_schema)
        assert json.loads(results[tool.name].content[0].text) == results[tool.name].structured_content
    found = results["extract_relations"].structured_content
    assert [one["text"] for one in found["entities"]] == ["Ada", "Charles"]
    assert [(one["head"]["text"], one["relation"], one["tail"]["text"]) for one in found["relations"]] == [
        ("Ada", "met", "Charles")
    ]
    assert [one["label"] for one in results["classify"].structured_content["labels"]] == ["yes"]
    assert results["redact"].structured_content["text"] == "[FULL_NAME_1] met [FULL_NAME_2]"
    restored = {"text": "Charles has met Ada.", "restored": 2, "ambiguous": 0, "unknown": []}
    assert results["restore"].structured_content == restored


def test_a_redacted_text_has_its_replacements_where_the_result_says(served):
    redacted = called(served(MemoryReplica()), "redact", CALLS["redact"]).structured_content
    places = [redacted["text"][one["start"] : one["end"]] for one in redacted["entities"]]
    assert places == ["[FULL_NAME_1]", "[FULL_NAME_2]"]
    assert SEALER.open("", redacted["mapping"]) == {"[FULL_NAME_1]": "Ada", "[FULL_NAME_2]": "Charles"}
    assert not {"Ada", "Charles"} & set(redacted["entities"][0].values())


def test_a_value_keeps_its_placeholder_in_the_next_turn(served):
    arguments = {"text": "Charles and Ada", "mapping": SEALED, "labels": ["person"]}
    redacted = called(served(MemoryReplica()), "redact", arguments).structured_content
    assert redacted["text"] == "[FULL_NAME_2] and [FULL_NAME_1]"


def test_lists_of_the_tools_that_find_entities(served):
    lists = {"allow_list": ["ada"], "deny_list": '[{"pattern": "m.t", "label": "verb"}]'}
    redacted = called(served(MemoryReplica()), "redact", CALLS["redact"] | lists).structured_content
    assert redacted["text"] == "Ada [VERB_1] [FULL_NAME_1]"
    found = called(served(MemoryReplica()), "extract_entities", CALLS["extract_entities"] | lists).structured_content
    assert [(one["text"], one["label"] == "verb") for one in found["entities"]] == [("met", True), ("Charles", False)]
    wrong = called(served(MemoryReplica()), "redact", CALLS["redact"] | {"deny_list": [{"pattern": "("}]})
    assert (wrong.is_error, wrong.content[0].text[:20]) == (True, "deny_list.0.pattern:")


def test_labels_may_be_decoys_and_have_thresholds(served):
    labels = {"person": {"description": "a human", "threshold": 0.1}, "king": {"returned": False}}
    for given in (labels, json.dumps(labels)):
        app, arguments = served(Scripted(("Ada", "person"), ("Charles", "king"))), {"text": TEXT, "labels": given}
        assert called(app, "redact", arguments).structured_content["text"] == "[PERSON_1] met Charles"
        found = called(app, "extract_entities", arguments).structured_content["entities"]
        assert [(one["text"], one["label"]) for one in found] == [("Ada", "person")]


def test_personal_data_and_secrets_are_redacted_by_default(served):
    arguments = {"text": "ada@example.org, password = 'hunter" + "2'", "style": "remove"}
    redacted = called(served(MemoryReplica()), "redact", arguments).structured_content
    assert (redacted["text"], redacted["mapping"]) == (", password = ''", None)


@pytest.mark.parametrize("tool", ["redact", "restore"])
def test_a_mapping_that_this_server_has_not_sealed_is_an_error(served, tool):
    result = called(served(MemoryReplica()), tool, CALLS[tool] | {"mapping": SEALED[:-9]})
    assert result.is_error
    assert result.content[0].text == "mapping: not a mapping of this server for this caller, or expired"


def test_a_redacted_text_is_not_much_longer_than_a_text_may_be(served):
    result = called(served(MemoryReplica()), "redact", {"text": "Ada met Charles", "labels": ["n" * 90]})
    assert result.is_error
    assert result.content[0].text == "labels: the result would have more than 200 characters (twice max_text_chars)"


def test_a_restored_text_has_a_maximum_length(served):
    arguments = {"text": "[A_1]" * 20, "mapping": SEALER.seal("", {"[A_1]": "x" * 100})}
    result = called(served(MemoryReplica()), "restore", arguments)
    assert result.is_error
    assert result.content[0].text == "text: the result would have more than 1000 characters (max_body_bytes)"


@pytest.mark.parametrize("name", CALLS)
def test_a_language_model_may_write_lists_and_objects_as_strings(served, name):
    written = {
        key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in CALLS[name].items()
    }
    results = [called(served(MemoryReplica()), name, arguments) for arguments in (CALLS[name], written)]
    assert not results[1].is_error
    expected = {**results[0].structured_content}
    if name == "redact":
        expected["mapping"] = results[1].structured_content["mapping"]  # encrypted, so it differs each time
    assert results[1].structured_content == expected


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("extract_entities", {"text": "a", "labels": "person"}, "labels: "),
        ("extract_entities", {"text": "a", "labels": "[person"}, "labels: "),
        ("extract_entities", {"text": "a"}, "labels: Field required"),
        ("extract_entities", {"text": "secret", "labels": ["a"], "treshold": 1}, "treshold: unknown field"),
        ("extract_entities", {"text": 7, "labels": ["a"]}, "text: Input should be a valid string"),
        ("extract_entities", {"text": "x" * 101, "labels": ["a"]}, "text: 101 characters; the limit is 100"),
        ("extract_entities", {"text": "a", "labels": []}, "labels: "),
        ("other", {}, f"no such tool: other; there are {', '.join(CALLS)}"),
    ],
)
def test_a_wrong_call_gets_a_result_that_names_the_field(served, name, arguments, message):
    result = called(served(MemoryReplica()), name, arguments)
    assert result.is_error
    assert result.content[0].text.startswith(message)
    assert "secret" not in result.content[0].text


def test_a_call_belongs_to_the_tenant_of_its_key(served):
    replica = MemoryReplica()
    app = served(replica, api_keys=KEYS)
    key = {"Authorization": "Bearer reader"}
    assert not called(app, "extract_entities", CALLS["extract_entities"], headers=key, host="gliner.example").is_error
    assert replica.calls[0][1].tenant == "t"
    assert posted(app).status_code == 401
    assert posted(app, headers={"X-API-Key": "observer"}).status_code == 403


def test_an_overloaded_server_refuses_messages_as_it_refuses_extractions(served):
    app = served(MemoryReplica(), max_tenant_requests_per_s=1.0)
    assert posted(app).status_code == 200
    refused = posted(app)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
    assert app.early.arrive({"type": "http", "method": "POST", "path": "/mcp", "headers": []}) is not None


def test_a_full_queue_is_a_result_that_says_when_to_try_again(served):
    result = called(served(MemoryReplica(queue_capacity=0)), "extract_entities", CALLS["extract_entities"])
    assert result.is_error
    assert "the queue is full; try again in" in result.content[0].text


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"jsonrpc": "2.0"}', b""])
def test_what_is_no_message_is_answered_400(served, content):
    headers = {"Content-Type": "application/json"}
    assert posted(served(MemoryReplica()), json=None, content=content, headers=headers).status_code == 400


def test_the_route_is_off_by_default_and_needs_its_package(monkeypatch):
    assert not Settings().enable_mcp
    assert "/mcp" not in {endpoint.path for endpoint in GatewayApp(OPTIONS).endpoints}
    monkeypatch.setattr("gliner_bento.settings.field_types.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"enable_mcp: mcp is not installed; install the extra mcp: "):
        Settings.load({"enable_mcp": "true"})
    monkeypatch.setattr("gliner_bento.settings.field_types.find_spec", importlib.util.find_spec)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tools_schemas_are_valid_and_every_argument_is_described(tool):
    arguments = tool.input_schema(["pii", "general"])
    for schema in (arguments, tool.output_schema):
        Draft202012Validator.check_schema(schema)
    assert all(field["description"] for field in arguments["properties"].values())
    assert arguments["additionalProperties"] is False


@pytest.mark.parametrize("name", [name for name in CALLS if name != "restore"])
def test_a_tool_runs_on_the_model_that_it_names(served, name):
    replicas = {"general": MemoryReplica(), "pii": MemoryReplica()}

    async def questions(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answers = [await client.call_tool(name, CALLS[name] | {"model": model}) for model in ("pii", "other")]
        return tools[name].input_schema, answers

    schema, (answered, unknown) = asked(served(replicas), questions)
    assert schema["properties"]["model"]["enum"] == ["general", "pii"]
    validate(CALLS[name] | {"model": "pii"}, schema)
    assert not answered.is_error
    assert [len(replica.calls) for replica in replicas.values()] == [0, 1]
    assert unknown.is_error
    assert unknown.content[0].text == "model: no model 'other'; there are general, pii"
