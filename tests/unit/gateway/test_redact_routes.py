"""`/v1/redact`, `/v1/redact/batch` and `/v1/restore`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import stat
import time
from hashlib import sha256

import httpx
import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from pydantic import SecretStr
from test_recognizers_of_requests import Scripted

from gliner_bento.client import AsyncClient
from gliner_bento.errors import InternalError
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.model_types import ModelRow
from gliner_bento.privacy.sealing import Sealer
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.storage import redaction_keys

TEXT = "Ada Ng pays with 4111 1111 1111 1111"
FOUND = ("Ada Ng", "person"), ("Bob Ek", "person")
LARGE = dataclasses.replace(OPTIONS, max_body_bytes=2**20, max_batch_items=20, max_labels=10)
KEYS = json.dumps([{"name": name, "sha256": sha256(name.encode()).hexdigest(), "scopes": ["extract"]} for name in "ab"])


@pytest.fixture
def post(serving):
    """Sends a body to a route, or all bodies to one server; returns the responses' JSON."""

    def send(path, body, replica=None, key="", options=LARGE, status=200):
        client = serving(replica or Scripted(*FOUND), options)
        headers = {"X-API-Key": key} if key else {}
        response = asyncio.run(client.post(path, json=body, headers=headers))
        assert response.status_code == status, response.text
        return response.json()

    return send


def test_values_are_replaced_and_come_back(post):
    answer = post("/v1/redact", {"text": TEXT})
    assert answer["texts"] == ["[PERSON_1] pays with [CREDIT_CARD_1]"]
    assert answer["counts"] == {"person": 1, "credit card number": 1}
    assert (answer["model"], answer["warnings"]) == ("memory", [])
    for entity, original in zip(answer["entities"], ("Ada Ng", "4111 1111 1111 1111"), strict=True):
        redacted = answer["texts"][entity["text_idx"]]
        assert TEXT[entity["start"] : entity["end"]] == original
        assert redacted[entity["redacted_start"] : entity["redacted_end"]] == entity["replacement"]
    assert "Ada" not in json.dumps(answer)
    restored = post("/v1/restore", {"text": "**[Person 1]** [CREDIT_CARD_1] [CITY_1]", "mapping": answer["mapping"]})
    assert restored["texts"] == ["**Ada Ng** 4111 1111 1111 1111 [CITY_1]"]
    assert (restored["restored"], restored["ambiguous"], restored["unknown"]) == (2, 0, ["[CITY_1]"])


@pytest.mark.parametrize("style", ["Ａｄａ\u3000Ｎｇ", "𝐀𝐝𝐚 𝐍𝐠"])
def test_the_model_reads_other_forms_of_letters_as_plain_ones(post, style):
    answer = post("/v1/redact", {"text": f"{style} came"})
    assert answer["texts"] == ["[PERSON_1] came"]
    batch = post("/v1/redact/batch", {"texts": [f"{style} came"]})
    assert batch["results"][0]["result"]["texts"] == ["[PERSON_1] came"]
    restored = post("/v1/restore", {"text": "[PERSON_1]", "mapping": answer["mapping"]})
    assert restored["texts"] == [style]


@pytest.mark.parametrize(("options", "names"), [({}, 1), ({"threshold": 0.3}, 2)])
def test_by_default_unsure_persons_need_the_form_of_a_full_name(post, options, names):
    class Unsure(Scripted):
        score = 0.35

    answer = post(
        "/v1/redact", {"text": "so Ada Ng saw Bo.", **options}, Unsure(("Ada Ng", "person"), ("Bo", "person"))
    )
    assert answer["counts"] == {"person": names}


def test_secrets_are_replaced_by_default(post):
    key, password = "ghp_" + "a1B2" * 9, "hunter" + "2"
    text = f"{key} db://ada:{password}@x, password = '{password}'"
    answer = post("/v1/redact", {"text": text})
    assert answer["texts"] == ["[API_KEY_1] [URL_1], password = '[PASSWORD_1]'"]
    assert post("/v1/restore", {"text": answer["texts"][0], "mapping": answer["mapping"]})["texts"] == [text]


def test_by_default_names_that_a_text_announces_are_replaced_and_what_can_be_no_date_stays(post):
    text, replica = "Surname: Ekberg. In two days, on 4 May", Scripted(("two days", "date"), ("4 May", "date"))
    assert post("/v1/redact", {"text": text}, replica)["texts"] == ["Surname: [PERSON_1]. In two days, on [DATE_1]"]
    labels = replica.calls[0][0][0].labels
    assert {"person", "id number", "medical term"} <= {*labels}
    for options, redacted in (
        ({"labels": ["date"]}, "Surname: Ekberg. In [DATE_1], on [DATE_2]"),
        ({"recognizers": False}, "Surname: Ekberg. In two days, on [DATE_1]"),
    ):
        assert post("/v1/redact", {"text": text, **options}, replica)["texts"] == [redacted]
    few = dataclasses.replace(LARGE, max_labels=5)
    assert post("/v1/redact", {"text": "Ada Ng"}, options=few)["texts"] == ["[PERSON_1]"]


OF_JSON = {"labels": ["person"], "recognizers": False, "deny_list": {"phone": ["4155550123"], "flag": ["true"]}}


@pytest.mark.parametrize(
    ("style", "values"),
    [
        ("placeholder", ["[PERSON_1]", "[PHONE_NUMBER_1]", ["[PHONE_NUMBER_1]", "[FLAG_1]", "[PHONE_NUMBER_2]"]]),
        ("mask", ["*** **", "**********", ["**********", "****", "************"]]),
        ("remove", ["", "", ["", "", ""]]),
    ],
)
def test_json_stays_json_when_its_numbers_are_replaced(post, style, values):
    text = '{"a": "Ada Ng", "b": 4155550123, "c": ["4155550123", true, 4155550123.5]}'
    answer = post("/v1/redact", {"text": text, "style": style, **OF_JSON}, Scripted(("Ada Ng", "person")))
    assert [*json.loads(answer["texts"][0]).values()] == values
    for one in answer["entities"]:
        assert answer["texts"][0][one["redacted_start"] : one["redacted_end"]] == one["replacement"]


def test_json_stays_json_when_the_model_takes_several_values_for_one(post):
    text = '[{"first": "Ad\\u0061", "last": "Ng", "ok": true}, "\\"Bo\\" \\ud83d\\ude00x", "a\\\\\\nEk\\n"]'
    over = 'Ada", "last": "Ng", '
    model = Scripted((over, "person"), ('Bo" 😀', "person"), ("Ek", "person"))
    answer = post("/v1/redact", {"text": text, "labels": ["person"]}, model)
    redacted = json.loads(answer["texts"][0])
    assert redacted == [{"first": "[PERSON_1]", "last": "[PERSON_2]", "ok": True}, '"[PERSON_3]x', "a\\\n[PERSON_4]\n"]
    restored = post("/v1/restore", {"text": answer["texts"][0], "mapping": answer["mapping"]})["texts"][0]
    assert json.loads(restored) == json.loads(text)


@pytest.mark.parametrize("blank", ["\n", "\t", "\r\n"])
def test_what_was_found_before_is_found_behind_a_line_end_of_json(post, blank):
    """Its escape ends with a letter, which is none of the word behind it."""
    before = {"texts": ["Ada Ng", "7 Elm Road\nOslo"], "labels": ["person"], "recognizers": False}
    model = Scripted(("Ada Ng", "person"), ("7 Elm Road\nOslo", "person"))
    mapping = post("/v1/redact", before, model)["mapping"]
    text = json.dumps([f"to{blank}Ada Ng", f"x{blank}Bluebird", f"7 Elm Road{blank}Oslo"])
    body = {"text": text, "mapping": mapping, "deny_list": {"project": ["Bluebird"]}, "recognizers": False}
    answer = post("/v1/redact", body, Scripted())
    assert json.loads(answer["texts"][0]) == [f"to{blank}[PERSON_1]", f"x{blank}[PROJECT_1]", "[PERSON_2]"]
    restored = post("/v1/restore", {"text": answer["texts"][0], "mapping": answer["mapping"]})["texts"][0]
    assert json.loads(restored) == [f"to{blank}Ada Ng", f"x{blank}Bluebird", "7 Elm Road\nOslo"]


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_what_json_has_with_escapes_is_found_and_replaced(post, levels):
    """Python writes `Zo\\u00eb`; the arguments of a tool call are JSON in a string of JSON."""
    content = '\U0001f600Zoë Ek\n"Bo"\tÉ/Ng'
    texts = ["Zoë Ek and Ada", wrapped(content, levels)]
    model = Scripted(("Zoë Ek", "person"), ("Bo", "person"))
    body = {"texts": texts, "labels": ["person"], "recognizers": False, "deny_list": {"person": ["É/Ng"]}}
    answer = post("/v1/redact", body, model)
    assert unwrapped(answer["texts"][1], levels) == '\U0001f600[PERSON_1]\n"[PERSON_2]"\t[PERSON_3]'
    for one in answer["entities"]:
        text = answer["texts"][one["text_idx"]]
        assert text[one["redacted_start"] : one["redacted_end"]] == one["replacement"]
    restored = post("/v1/restore", {"texts": answer["texts"], "mapping": answer["mapping"]})["texts"]
    assert unwrapped(restored[1], levels) == content


@pytest.mark.parametrize("levels", [1, 2])
def test_json_in_a_string_of_json_stays_json(post, levels):
    text = wrapped({"b": 4155550123, "c": "Ada Ng", "d": ["Bo\n"]}, levels)
    model = Scripted(('Ada Ng", "d": ["Bo', "person"))
    answer = post("/v1/redact", {"text": text, "labels": ["person"], **OF_JSON}, model)
    redacted = unwrapped(answer["texts"][0], levels)
    assert redacted == {"b": "[PHONE_NUMBER_1]", "c": "[PERSON_1]", "d": ["[PERSON_2]\n"]}
    restored = post("/v1/restore", {"text": answer["texts"][0], "mapping": answer["mapping"]})["texts"][0]
    assert unwrapped(restored, levels) == {"b": "4155550123", "c": "Ada Ng", "d": ["Bo\n"]}


def test_a_list_of_json_may_begin_with_a_word(post):
    text = '[null, "Zo\\u00eb Ek", "[true, \\"Zo\\\\u00eb Ek\\"]"]'
    answer = post("/v1/redact", {"text": text, "labels": ["person"]}, Scripted(("Zoë Ek", "person")))
    assert json.loads(answer["texts"][0]) == [None, "[PERSON_1]", '[true, "[PERSON_1]"]']


def test_escapes_of_json_inside_other_text_are_read(post):
    """Lines of JSON, and a tool's answer in a sentence."""
    inside = 'It said {"to": "\\nZo\\u00eb Ek", "b": ["\\"Bo\\""]}, C:\\new {"'
    lines = '{"a": "x\\tAda Ng"}\n{"b": "Zo\\u00eb Ek"}\n'
    body = {"texts": ["Zoë Ek and Ada Ng", inside, lines], "labels": ["person"], "recognizers": False}
    answer = post("/v1/redact", body, Scripted(("Zoë Ek", "person"), ("Ada Ng", "person"), ('Bo"', "person")))
    assert answer["texts"][1:] == [
        'It said {"to": "\\n[PERSON_1]", "b": ["\\"[PERSON_3]"]}, C:\\new {"',
        '{"a": "x\\t[PERSON_2]"}\n{"b": "[PERSON_1]"}\n',
    ]
    restored = post("/v1/restore", {"texts": answer["texts"], "mapping": answer["mapping"]})["texts"]
    assert restored == [text.replace("\\u00eb", "ë") for text in body["texts"]]


def wrapped(value, levels):
    """JSON in a string of JSON, and so on."""
    for _ in range(levels):
        value = json.dumps([value])
    return value


def unwrapped(text, levels):
    """What `wrapped` was made of."""
    for _ in range(levels):
        (text,) = json.loads(text)
    return text


def test_a_conversation_has_one_numbering_over_texts_and_turns(post):
    first = post("/v1/redact", {"texts": ["Bob Ek", "Ada Ng met Bob Ek"]})
    assert first["texts"] == ["[PERSON_1]", "[PERSON_2] met [PERSON_1]"]
    second = post("/v1/redact", {"text": "Ada Ng of [PERSON_1]", "mapping": first["mapping"]}, MemoryReplica())
    assert second["texts"] == ["[PERSON_2] of [PERSON_1]"]
    restored = post("/v1/restore", {"texts": second["texts"] * 2, "mapping": second["mapping"]})
    assert restored["texts"] == ["Ada Ng of Bob Ek"] * 2


def test_a_conversation_with_an_id_needs_no_mapping(post):
    def redacted(text, **options):
        return post("/v1/redact", {"text": text, **options})["texts"][0]

    one = redacted("Ada Ng", conversation="c1")
    assert redacted(f"{one}, Ada Ng", conversation="c1") == f"{one}, {one}"
    assert one != redacted("Ada Ng", conversation="c2")
    assert redacted("Ada Ng", style="hash") == redacted("Ada Ng", style="hash") != one


@pytest.mark.parametrize(
    ("style", "text"), [("mask", "*** ** pays with **** **** **** ****"), ("remove", " pays with ")]
)
def test_a_style_without_placeholders_has_no_mapping(post, style, text):
    answer = post("/v1/redact", {"text": TEXT, "style": style})
    assert (answer["texts"], answer["mapping"]) == ([text], None)
    wrong = post("/v1/redact", {"text": TEXT, "style": style, "mapping": "x"}, status=422)
    assert wrong["error"]["param"] == "mapping"


def test_the_python_client_redacts_and_restores():
    app = GatewayApp(LARGE)
    app.bind(Scripted(*FOUND))

    async def scene():
        async with AsyncClient("http://localhost", transport=httpx.ASGITransport(app)) as client:
            first = await client.redact(["Bob Ek"])
            second = await client.redact([TEXT], mapping=first.mapping, labels=["person"])
            return second, await client.restore("Dear [Person 2],", second.mapping)

    redacted, restored = asyncio.run(scene())
    assert redacted.texts == ["[PERSON_2] pays with [CREDIT_CARD_1]"]
    assert redacted.entities[0].label == "person"
    assert (restored.texts, restored.restored) == (["Dear Ada Ng,"], 1)


def test_lists_and_chosen_finders(post):
    body = {"text": "Ada Ng: 4111 1111 1111 1111, Blue", "allow_list": ["ada ng"], "deny_list": {"project": ["blue"]}}
    assert post("/v1/redact", body)["texts"] == ["Ada Ng: [CREDIT_CARD_1], [PROJECT_1]"]
    only = post("/v1/redact", {"text": TEXT + " Blue", "labels": [], "recognizers": False, "deny_list": ["Blue"]})
    assert (only["texts"], only["model"]) == ([TEXT + " [SENSITIVE_1]"], "memory")
    decoy = {"text": "Ada Ng met Bob Ek", "labels": {"person": {"threshold": 0.3}, "singer": {"returned": False}}}
    assert post("/v1/redact", decoy, Scripted(("Ada Ng", "singer"), ("Bob Ek", "person")))["texts"] == [
        "Ada Ng met [PERSON_1]"
    ]
    body = {"text": TEXT, "labels": {"name": "a person"}, "recognizers": {"CREDIT_CARD": "card"}}
    named = post("/v1/redact", body, Scripted(("Ada Ng", "name")))
    assert named["texts"] == ["[NAME_1] pays with [CREDIT_CARD_1]"]


def test_independent_texts_have_their_own_numbers_and_a_text_fails_alone(post):
    answer = post("/v1/redact/batch", {"texts": ["Ada Ng", "Bob Ek", "x" * 101]})
    one, two, failed = answer["results"]
    assert [each["result"]["texts"] for each in (one, two)] == [["[PERSON_1]"]] * 2
    assert (failed["result"], failed["error"]["param"]) == (None, "texts.2")
    mapping = two["result"]["mapping"]
    assert post("/v1/restore", {"text": "[PERSON_1]", "mapping": mapping})["texts"] == ["Bob Ek"]


def test_a_text_fails_alone_also_if_only_a_list_is_looked_for(post):
    only = {"labels": [], "recognizers": False, "deny_list": ["Blue"]}
    answer = post("/v1/redact/batch", {"texts": ["Ada is Blue", "x" * 101], **only})
    found, failed = answer["results"]
    assert (answer["model"], found["result"]["texts"]) == ("memory", ["Ada is [SENSITIVE_1]"])
    assert (failed["result"], failed["error"]["code"], failed["error"]["param"]) == (None, "too_large", "texts.1")
    assert post("/v1/redact", {"texts": ["a", "x" * 101], **only}, status=413)["error"]["param"] == "texts.1"


def test_all_or_nothing(post):
    replica = MemoryReplica(error=lambda item: InternalError("broken") if "Bob" in item.text else None)
    failed = post("/v1/redact", {"texts": ["Ada Ng", "Bob"]}, replica, status=500)
    assert [*failed] == ["error"]
    too_long = post("/v1/redact", {"texts": ["Ada Ng", "x" * 101]}, status=413)
    assert (too_long["error"]["param"], [*too_long]) == ("texts.1", ["error"])
    many = dataclasses.replace(LARGE, max_entities=1)
    assert post("/v1/redact", {"text": f"{TEXT} {TEXT}"}, options=many, status=422)["error"]["code"] == "limit_exceeded"
    small = dataclasses.replace(LARGE, max_mapping_bytes=40)
    assert post("/v1/redact", {"text": TEXT}, options=small, status=413)["error"]["param"] == "mapping"


UNRESTORABLE = [("/v1/redact", {"text": "a"}, "mask"), ("/v1/redact/batch", {"texts": ["a"]}, "remove")]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/redact", {}, "text"),
        ("/v1/redact", {"text": "a", "texts": ["b"]}, "text"),
        ("/v1/redact", {"texts": []}, "texts"),
        ("/v1/redact", {"text": "a", "style": "blur"}, "style"),
        ("/v1/redact", {"text": "a", "recognizers": ["CREDIT_CRD"]}, "recognizers.0"),
        ("/v1/redact", {"text": "a", "deny_list": {"x": [""]}}, "deny_list.x.0"),
        ("/v1/redact", {"text": "a", "mapping": "gAAAA"}, "mapping"),
        ("/v1/redact", {"text": "a", "conversation": "a b"}, "conversation"),
        *((path, {**text, "conversation": "c", "style": style}, "conversation") for path, text, style in UNRESTORABLE),
        ("/v1/redact", {"text": "a", "labels": ["n" * 101]}, "labels"),
        ("/v1/redact", {"text": "a", "labels": [], "recognizers": {"CREDIT_CARD": "n" * 101}}, "recognizers"),
        ("/v1/redact/batch", {"texts": ["a"], "labels": [], "deny_list": {"n" * 101: ["a"]}}, "deny_list"),
        ("/v1/restore", {"text": "a", "mapping": ""}, "mapping"),
        ("/v1/restore", {"texts": ["a"], "partial": True}, "partial"),
        ("/v1/restore", {"text": "a" * 101}, "text"),
    ],
)
def test_a_wrong_field_is_named(post, path, body, param):
    error = post(path, body, status=413 if "a" * 101 in str(body) else 422)["error"]
    assert error["param"] == param


def test_a_short_text_does_not_become_a_large_one(post):
    options = dataclasses.replace(OPTIONS, max_labels=10)
    long_label = {"labels": [], "deny_list": [{"value": "Ada", "label": "n" * 100}]}
    text = "Ada " * 8
    mapping = post("/v1/redact", {"text": "x" * 90, "labels": [], "deny_list": ["x" * 90]}, options=options)["mapping"]
    for path, body in (
        ("/v1/redact", {"text": text * 2, **long_label}),
        ("/v1/redact", {"texts": [text] * 2, **long_label}),
        ("/v1/restore", {"text": "[SENSITIVE_1]" * 7, "mapping": mapping}),
        ("/v1/restore", {"texts": ["[SENSITIVE_1]" * 4] * 3, "mapping": mapping}),
        ("/v1/restore", {"text": "[SENSITIVE_1]" * 7 + " " * 9, "mapping": mapping, "partial": True}),
    ):
        limit = 500 if path == "/v1/restore" else 1000
        small = dataclasses.replace(options, max_body_bytes=limit)
        error = post(path, body, options=small, status=413)["error"]
        assert (error["param"], "max_body_bytes" in error["message"]) == ("text", True)
    results = post("/v1/redact/batch", {"texts": [text] * 2, **long_label}, options=options)["results"]
    assert [result["error"] and result["error"]["code"] for result in results] == [None, "too_large"]


def test_what_any_model_redacts_can_be_restored():
    app = GatewayApp(LARGE)
    app.bind({"small": Scripted(), "large": Scripted()}, models=ModelsWithLimits())
    text = "x" * 150

    async def scene():
        await app.gateway.models.refresh()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            redacted = await client.post("/v1/redact", json={"text": text, "model": "large"})
            assert redacted.json()["texts"] == [text]
            for path, fields in (
                ("/v1/restore", {}),
                ("/v1/restore/stream", {}),
                ("/anonymize", {"analyzer_results": []}),
            ):
                for size, status in ((150, 200), (201, 413)):
                    answer = await client.post(path, json={"text": "x" * size, **fields})
                    assert answer.status_code == status, path
            for texts, status in (([text] * 30, 200), (["x"] * 31, 413), ([text * 2], 413)):
                assert (await client.post("/v1/restore", json={"texts": texts})).status_code == status

    asyncio.run(scene())


class ModelsWithLimits:
    """Two models, of which the second has larger limits."""

    async def rows(self):
        limits = {"max_text_chars": 200, "max_batch_items": 30}
        return [ModelRow(name="small", state="ready"), ModelRow(name="large", state="ready", limits=limits)]


def test_chunks_of_a_stream_are_restored_as_they_come(post):
    mapping = post("/v1/redact", {"text": TEXT})["mapping"]
    restored, held = "", ""
    for chunk in ("Dear [PER", "SON", "_1], hello ", "[", "x]"):
        answer = post("/v1/restore", {"text": held + chunk, "mapping": mapping, "partial": True})
        restored, held = restored + answer["texts"][0], answer["held"]
    assert (restored + held) == "Dear Ada Ng, hello [x]"


def test_a_mapping_is_of_the_tenant_whose_key_made_it(post):
    keyed = dataclasses.replace(LARGE, api_keys=KEYS)
    mapping = post("/v1/redact", {"text": TEXT}, key="a", options=keyed)["mapping"]
    body = {"text": "[PERSON_1]", "mapping": mapping}
    assert post("/v1/restore", body, key="a", options=keyed)["texts"] == ["Ada Ng"]
    messages = {
        post("/v1/restore", body, key="b", options=keyed, status=422)["error"]["message"],
        post("/v1/restore", body, options=dataclasses.replace(LARGE, max_mapping_bytes=5), status=422)["error"][
            "message"
        ],
        post("/v1/redact", {**body, "mapping": mapping[:-4]}, key="a", options=keyed, status=422)["error"]["message"],
    }
    assert len(messages) == 1
    hashed = [
        post("/v1/redact", {"text": "Ada Ng", "style": "hash"}, key=key, options=keyed)["texts"] for key in ("a", "b")
    ]
    assert hashed[0] != hashed[1]


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path, monkeypatch, post):
    file = tmp_path / "new" / "redaction.key"
    options = dataclasses.replace(LARGE, redaction_key=SecretStr(str(file)))
    mapping = post("/v1/redact", {"text": TEXT}, options=options)["mapping"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["redaction.key"]
    assert post("/v1/restore", {"text": "[PERSON_1]", "mapping": mapping}, options=options)["texts"] == ["Ada Ng"]
    rotated = dataclasses.replace(options, redaction_key=SecretStr(f"{'k' * 40},{file.read_text().strip()}"))
    assert post("/v1/restore", {"text": "[PERSON_1]", "mapping": mapping}, options=rotated)["texts"] == ["Ada Ng"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unset = dataclasses.replace(LARGE, redaction_key=None)
    post("/v1/redact", {"text": TEXT}, options=unset)
    assert (tmp_path / "gliner-bento" / "redaction.key").exists()


WITH_MAPPING = [
    ("/v1/redact", {"text": TEXT}),
    ("/v1/restore", {"text": "[PERSON_1]"}),
    ("/v1/restore", {"texts": ["[PERSON_1]"]}),
    ("/v1/restore", {"text": "[PERSON_1]", "partial": True}),
    ("/v1/restore/stream", {"text": "[PERSON_1]"}),
]
GUARDED = ("/beta/litellm_basic_guardrail_api", {"input_type": "request", "texts": [TEXT], "litellm_call_id": "c"})


@pytest.mark.parametrize(("path", "body"), WITH_MAPPING)
def test_a_mapping_that_cannot_be_opened_is_one_error_and_no_text(post, path, body):
    """It does not help to find out why."""
    key, wrong = LARGE.redaction_key.get_secret_value().encode(), []
    for secret, tenant, age_s in ((b"k" * 40, "", 0), (key, "another", 0), (key, "", 2 * LARGE.mapping_lifetime_s)):
        sealer = Sealer([secret], max_bytes=5000, lifetime_s=1, clock=lambda age_s=age_s: time.time() - age_s)
        wrong.append(sealer.seal(tenant, {"[PERSON_1]": "Ada Ng"}))
    wrong += [wrong[0][:-4], "x" * (LARGE.max_mapping_bytes + 1), "é"]
    answers = [post(path, {**body, "mapping": one}, status=422) for one in wrong]
    assert {(*answer, answer["error"]["param"], answer["error"]["message"]) for answer in answers} == {
        ("error", "mapping", "mapping: not a mapping of this server for this caller, or expired")
    }


@pytest.mark.parametrize("name", ["short", "."])
def test_a_key_that_cannot_be_read_is_one_clear_error(tmp_path, post, caplog, name):
    (tmp_path / "short").write_text("abc\n")
    options = dataclasses.replace(LARGE, redaction_key=SecretStr(str(tmp_path / name)))
    mapping = post("/v1/redact", {"text": TEXT})["mapping"]
    routes = [(path, {**body, "mapping": mapping}) for path, body in WITH_MAPPING]
    response = {**GUARDED[1], "input_type": "response"}
    for path, body in (*routes, ("/v1/redact/batch", {"texts": [TEXT]}), GUARDED, (GUARDED[0], response)):
        answer = post(path, body, options=options, status=507)
        assert [*answer] == ["error"]
        assert "redaction_key" in answer["error"]["message"]
        assert str(tmp_path) not in answer["error"]["message"]
        assert str(tmp_path) in caplog.text
        assert "abc" not in caplog.text.replace(str(tmp_path), "")


def test_another_process_that_makes_the_key_first_wins(tmp_path, monkeypatch):
    file = tmp_path / "redaction.key"
    link = redaction_keys.os.link

    def late(source, target):
        file.write_text("k" * 40)
        link(source, target)

    monkeypatch.setattr(redaction_keys.os, "link", late)
    assert redaction_keys.read_keys(str(file)) == [b"k" * 40]
    assert [path.name for path in tmp_path.iterdir()] == ["redaction.key"]


def test_the_setting_is_a_file_or_keys_and_is_never_shown():
    settings = Settings.load({"redaction_key": "k" * 32})
    assert settings.redaction_key.get_secret_value() == "k" * 32
    assert "kkk" not in repr(settings)
    for wrong in ("short", "k" * 32 + ",short", ","):
        with pytest.raises(SettingsError, match=r"redaction_key: .*a secret"):
            Settings.load({"redaction_key": wrong})
    assert Settings.load({"redaction_key": "~/x"}).redaction_key.get_secret_value().startswith("/")


def test_a_key_in_base64_is_no_path_though_it_has_slashes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    key = "Vd3/x0qhB+Vp/7tJm2Yw9QeLr5sKfA1uZc8NgTi4oE6="
    for source in (key, "/" + key, key[:-1], f"{key},{key[::-1][1:]}"):
        assert Settings.load({"redaction_key": source}).redaction_key.get_secret_value() == source
        assert redaction_keys.read_keys(source) == [one.encode() for one in source.split(",")]
    with pytest.raises(SettingsError, match="redaction_key: make the folder") as error:
        Settings.load({"redaction_key": "/" + key[:-1]})
    assert "x0q" not in str(error.value)
    assert [*tmp_path.iterdir()] == []
    path = tmp_path / key[:-1]
    path.parent.mkdir(parents=True)
    for source in (key[:-1], str(path)):  # now it is a file that is to be made
        assert Settings.load({"redaction_key": source}).redaction_key.get_secret_value() == str(path)
        assert redaction_keys.is_path(source)
