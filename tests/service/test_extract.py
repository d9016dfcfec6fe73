"""The public routes over the real model: answers, limits, and one clear error for whatever is wrong."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]
RELATIONS = ["founded", "founded in", "headquartered in"]
GOOD = {"text": TEXT, "labels": LABELS}
JSON = {"Content-Type": "application/json"}


def found(answer) -> set[tuple[str, str]]:
    return {(entity["text"], entity["label"]) for entity in answer["entities"]}


def test_the_readme_request_is_answered_right(service):
    answer = service.extract(**GOOD, relations=RELATIONS).json()
    assert found(answer) == {
        ("Bill Gates", "person"),
        ("Microsoft", "organization"),
        ("1975", "date"),
        ("Redmond", "location"),
    }
    related = {(r["head"]["text"], r["relation"], r["tail"]["text"]) for r in answer["relations"]}
    assert ("Bill Gates", "founded", "Microsoft") in related
    for relation in answer["relations"]:
        for end in (relation["head"], relation["tail"]):
            entity = answer["entities"][end["entity_idx"]]
            assert {key: entity[key] for key in ("start", "end", "text", "label")} == {
                key: end[key] for key in ("start", "end", "text", "label")
            }


@pytest.mark.parametrize("options", [{}, {"flat_ner": False, "multi_label": True, "threshold": 0.2}])
def test_a_decoy_competes_and_is_not_returned(service, options):
    everything = service.extract(**GOOD, relations=RELATIONS, **options).json()
    labels = {name: {"returned": name != "organization"} for name in LABELS}
    answer = service.extract(text=TEXT, labels=labels, relations=RELATIONS, **options).json()
    assert answer["entities"] == [one for one in everything["entities"] if one["label"] != "organization"]
    assert 0 < len(answer["entities"]) < len(everything["entities"])
    ends = [[relation["head"]["label"], relation["tail"]["label"]] for relation in everything["relations"]]
    assert len(answer["relations"]) == sum("organization" not in pair for pair in ends) < len(ends)
    assert answer["usage"] == everything["usage"]


def test_offsets_are_characters_whatever_the_script(service):
    for prefix in ("", "👩‍👩‍👧 e\u0301 ", "日本語のテキスト。", "שלום "):
        text = prefix + TEXT
        answer = service.extract(text=text, labels=LABELS).json()
        assert answer["entities"], prefix
        assert all(text[e["start"] : e["end"]] == e["text"] for e in answer["entities"])


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_a_blank_text_has_no_entities(service, text):
    answer = service.extract(text=text, labels=LABELS).json()
    usage = {"words": 0, "tokens": 0, "windows": 0, "passes": 0, "label_groups": 1, "relation_groups": 0}
    assert (answer["entities"], answer["usage"]) == ([], usage)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ufffd", "\u0301", "\u200b", "\x07 Bill Gates \x00", "🙂" * 50])
def test_odd_characters_are_text_like_any_other(service, text):
    response = service.extract(text=text, labels=LABELS)
    assert response.status_code == 200
    assert all(text[e["start"] : e["end"]] == e["text"] for e in response.json()["entities"])


def test_described_labels_are_answered_under_their_names(service):
    answer = service.extract(text=TEXT, labels={"WHO": "person", "WHERE": "location"}).json()
    assert ("Bill Gates", "WHO") in found(answer)
    assert {label for _, label in found(answer)} <= {"WHO", "WHERE"}


TYPED = {
    "labels": {"WHO": {"description": "person", "threshold": 1}, "organization": {}, "location": "location"},
    "relations": {
        "headquartered in": {"head": ["organization"], "tail": ["location"], "threshold": 0.3},
        "founded": {"tail": ["location"]},
    },
}


def typed_found(answer):
    relations = {(r["head"]["text"], r["relation"], r["tail"]["text"]) for r in answer["relations"]}
    return {(e["text"], e["label"]) for e in answer["entities"]}, relations


TYPED_FOUND = (
    {("Microsoft", "organization"), ("Redmond", "location")},
    {("Microsoft", "headquartered in", "Redmond")},
)


def test_labels_and_relations_with_options_in_every_route(service):
    assert typed_found(service.extract(text=TEXT, **TYPED).json()) == TYPED_FOUND
    body = {"texts": [TEXT, TEXT], **TYPED}
    for one in service.request("POST", "/v1/extract/batch", json=body).json()["results"]:
        assert typed_found(one["result"]) == TYPED_FOUND
    mixed = [{"text": TEXT, **TYPED}, {"text": TEXT}]
    body = {"items": mixed, "labels": {"WHO": "person", "organization": "organization"}}
    typed, other = service.request("POST", "/v1/extract/batch", json=body).json()["results"]
    assert typed_found(typed["result"]) == TYPED_FOUND
    assert ("Bill Gates", "WHO") in found(other["result"])
    lines = service.request("POST", "/v1/extract/stream", json={"text": TEXT, **TYPED}).text.splitlines()
    *entities, end = map(json.loads, lines)
    assert (
        typed_found({"entities": [line["entity"] for line in entities], "relations": end["relations"]}) == TYPED_FOUND
    )


def test_the_requests_of_the_page_on_concepts_are_answered(service):
    page = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")
    requests = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    assert len(requests) == 2
    for request in requests:
        answer = service.extract(**request)
        assert answer.status_code == 200, answer.text
        assert answer.json()["entities"]
    assert {(r["relation"], r["head"]["label"], r["tail"]["label"]) for r in answer.json()["relations"]} == {
        ("founded", "person", "organization"),
        ("headquartered in", "organization", "location"),
    }


def test_a_text_beyond_the_model_is_processed_in_full_truncated_or_refused(service):
    long = " ".join(["word"] * 2000)
    whole = service.extract(text=long, labels=LABELS).json()
    assert (whole["truncated"], whole["truncated_at"], whole["usage"]["words"]) == (False, None, 2000)
    cut = service.extract(text=long, labels=LABELS, long_text="truncate").json()
    assert cut["truncated"] is True
    assert cut["usage"]["words"] < 2000
    assert cut["truncated_at"] == 5 * cut["usage"]["words"] - 1
    assert service.extract(**GOOD).json()["truncated"] is False
    refused = service.extract(text=long, labels=LABELS, long_text="reject")
    assert (refused.status_code, refused.json()["error"]["param"]) == (413, "text")


def test_a_batch_answers_each_text_like_a_single_request(service):
    items = [
        {"text": TEXT},
        {"text": TEXT, "labels": ["person"]},
        {"text": "x" * 20001},
        {"text": "", "threshold": 0.1},
    ]
    answer = service.request("POST", "/v1/extract/batch", json={"items": items, "labels": LABELS}).json()
    first, second, third, fourth = answer["results"]
    assert found(first["result"]) == found(service.extract(**GOOD).json())
    assert found(second["result"]) == {("Bill Gates", "person")}
    assert (third["result"], third["error"]["code"]) == (None, "too_large")
    assert fourth["result"]["entities"] == []


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("比尔·盖茨于1975年创立了微软。", "most letters of the text are Chinese"),
        ("Bill Gates ist der Gründer, und er wohnt mit seiner Familie bei Seattle.", "the text seems to be German"),
    ],
)
def test_a_text_that_the_model_was_not_trained_for_has_a_warning(service, text, seen):
    body = {"text": text, "labels": LABELS}
    message = f"{seen}, but the model's card lists only en: expect missing or wrong results"
    warnings = [{"code": "unsupported_language", "message": message}]
    assert service.extract(**body).json()["warnings"] == warnings
    batch = service.request("POST", "/v1/extract/batch", json={"texts": [TEXT, text], "labels": LABELS}).json()
    assert [one["result"]["warnings"] for one in batch["results"]] == [[], warnings]
    lines = service.request("POST", "/v1/extract/stream", json=body).text.splitlines()
    assert json.loads(lines[-1])["warnings"] == warnings
    assert set(service.request("POST", "/gliner", json=body).json()) == {"entities"}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (
            "/v1/extract",
            {"text": "a", "lables": ["x"], "foo": 1},
            422,
            "lables: unknown field (did you mean 'labels'?); foo: unknown field",
        ),
        (
            "/v1/extract/stream",
            {"text": "a", "lables": ["x"]},
            422,
            "lables: unknown field (did you mean 'labels'?)",
        ),
        (
            "/v1/extract/batch",
            {"items": [{"text": "a"}, {"text": "a", "lables": ["x"]}], "label": ["x"]},
            422,
            "items.1.lables: unknown field (did you mean 'labels'?); label: unknown field (did you mean 'labels'?)",
        ),
        (
            "/gliner",
            {"text": "a", "lables": ["x"]},
            400,
            "lables: unknown field (did you mean 'labels'?); labels: Field required",
        ),
    ],
)
def test_a_misspelt_field_and_the_missing_one_are_one_error(service, path, body, status, message):
    response = service.request("POST", path, json=body)
    error = response.json()["error"]
    if path == "/gliner":
        assert (response.status_code, error) == (status, message)
        return
    assert (response.status_code, error["message"]) == (status, message)
    assert error["param"] == message.partition(":")[0]


BAD = {
    "malformed JSON": ('{"text": "a",', 400, None),
    "not an object": ("[1, 2]", 422, None),
    "a text that is no string": ('{"text": 5, "labels": ["x"]}', 422, "text"),
    "an unknown field": ('{"text": "a", "labels": ["x"], "thresold": 0.5}', 422, "thresold"),
    "no labels": ('{"text": "a"}', 422, "labels"),
    "empty labels": ('{"text": "a", "labels": []}', 422, "labels"),
    "an empty label": ('{"text": "a", "labels": ["x", ""]}', 422, "labels.1"),
    "a threshold above 1": ('{"text": "a", "labels": ["x"], "threshold": 1.5}', 422, "threshold"),
    "a threshold below 0": ('{"text": "a", "labels": ["x"], "threshold": -1}', 422, "threshold"),
    "a threshold that is no number": ('{"text": "a", "labels": ["x"], "threshold": NaN}', 422, "threshold"),
    "a text over max_text_chars": (json.dumps({"text": "a" * 20001, "labels": ["x"]}), 413, "text"),
    "10,000 labels": (json.dumps({"text": "a", "labels": [f"l{i}" for i in range(10000)]}), 422, "labels"),
    "a label that leaves no room": (json.dumps({"text": "a", "labels": ["x", "!" * 999]}), 422, "labels"),
    "an endless label": (json.dumps({"text": "a", "labels": ["x", "very " * 3000]}), 422, "labels.1"),
    "descriptions that collide": ('{"text": "a", "labels": {"x": "same", "y": "same"}}', 422, "labels"),
    "an unknown adapter": ('{"text": "a", "labels": ["x"], "adapter_id": "nobody"}', 404, "adapter_id"),
    "bytes that are no UTF-8": (b'{"text": "\xff\xfe", "labels": ["x"]}', 400, None),
    "deeply nested JSON": ('{"text": "a", "labels": ' + "[" * 50000 + "]" * 50000 + "}", 400, None),
    "10,000 numbers as labels": (json.dumps({"text": "a", "labels": [0] * 10000}), 422, "labels.0"),
    "10,000 unknown fields": (json.dumps({"text": "a"} | {f"a{i}": 0 for i in range(10000)}), 422, None),
    "10,000 unknown options": (
        json.dumps({"text": "a", "labels": {"x": {f"a{i}": 0 for i in range(10000)}}}),
        422,
        "labels.x",
    ),
    "an empty body": ("", 422, "text"),
    "long_text that nobody knows": ('{"text": "a", "labels": ["x"], "long_text": "whole"}', 422, "long_text"),
}


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/stream"])
@pytest.mark.parametrize(("content", "status", "param"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_one_clear_error(service, path, content, status, param):
    response = service.request("POST", path, content=content, headers=JSON)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param)
    assert error["message"]
    assert error["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("content", [content for content, _, _ in BAD.values()], ids=BAD.keys())
def test_bad_input_is_never_a_500_on_the_other_routes(service, content):
    for path in ("/v1/extract/batch", "/gliner"):
        response = service.request("POST", path, content=content, headers=JSON)
        assert 400 <= response.status_code < 500, response.text
        assert response.json()["error"]


@pytest.mark.parametrize(
    "name", ["a text over max_text_chars", "10,000 labels", "a label that leaves no room", "an unknown adapter"]
)
def test_a_bad_item_of_a_batch_gets_its_error_and_does_not_affect_the_others(service, name):
    content, _, param = BAD[name]
    items = [GOOD, json.loads(content), GOOD]
    first, bad, last = service.request("POST", "/v1/extract/batch", json={"items": items}).json()["results"]
    assert bad["error"]["param"] == f"items.1.{param}"
    assert found(first["result"]) == found(last["result"]) == found(service.extract(**GOOD).json())


@pytest.mark.bento_only
def test_concurrent_mixed_requests_get_the_answers_of_single_requests(service):
    bodies = mixed_bodies(40)
    single = [service.extract(**body) for body in bodies]
    order = list(range(len(bodies)))
    random.Random(1).shuffle(order)
    together = service.gather(*((lambda client, body=bodies[i]: client.post("/v1/extract", json=body)) for i in order))
    statuses = {response.status_code for response in single}
    assert statuses == {200, 404, 413, 422}, "the mix must hold good and bad requests"
    assert sum(len(response.json().get("entities", [])) for response in single) > 40
    assert sum(len(response.json().get("relations", [])) for response in single) > 10
    for i, response in zip(order, together, strict=True):
        assert_same_answer(single[i], response)


def mixed_bodies(count: int) -> list[dict]:
    """Requests of all lengths, labels, thresholds and options; about one in ten is bad."""
    rng = random.Random(0)
    sentences = [
        TEXT,
        "Ada Lovelace lived in London and worked with Charles Babbage.",
        "Marie Curie was born in Warsaw on 7 November 1867.",
        "Tim Cook works at Apple in Cupertino.",
        "nothing to see here.",
    ]
    sets = [LABELS, ["person"], ["company", "city", "year"], {"WHO": "person", "PLACE": "location"}]
    bodies: list[dict] = []
    for i in range(count):
        text = " ".join(rng.choice(sentences) for _ in range(rng.randint(1, 12)))
        body = {"text": text, "labels": rng.choice(sets), "threshold": rng.choice([0.3, 0.5, 0.7])}
        body |= rng.choice([{}, {"flat_ner": False}, {"multi_label": True}])
        if i % 3 == 0:
            body |= {"relations": rng.choice([RELATIONS, ["works at"], {"where": "lived in"}])}
        if i % 10 == 9:
            bads = [{"labels": []}, {"text": "x" * 20001}, {"adapter_id": "nobody"}, {"labels": ["very " * 3000]}]
            body |= bads[i // 10 % len(bads)]
        bodies.append(body)
    return bodies


def assert_same_answer(single, together):
    assert together.status_code == single.status_code
    one, other = single.json(), together.json()
    if single.status_code != 200:
        assert {k: v for k, v in one["error"].items() if k != "request_id"} == {
            k: v for k, v in other["error"].items() if k != "request_id"
        }
        return
    assert [(e["start"], e["end"], e["label"]) for e in one["entities"]] == [
        (e["start"], e["end"], e["label"]) for e in other["entities"]
    ]
    assert [e["score"] for e in other["entities"]] == pytest.approx([e["score"] for e in one["entities"]], abs=1e-4)

    def keys(answer):
        return sorted((r["head"]["entity_idx"], r["relation"], r["tail"]["entity_idx"]) for r in answer["relations"])

    assert keys(one) == keys(other)
    assert one["usage"] == other["usage"]
