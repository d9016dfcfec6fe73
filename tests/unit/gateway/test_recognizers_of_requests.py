"""`recognizers` of a request: which are asked for, and one answer of their matches and the model's entities."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento.client.calls import _parser
from gliner_bento.privacy.lists import Listed
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.tasks.extraction import Entity, Extraction, ExtractResponse, Relation, RelationArgument, SourcedEntity

TEXT = "Ada pays with 4111 1111 1111 1111"
CARD = {"start": 14, "end": 33, "text": "4111 1111 1111 1111", "label": "card", "score": 1.0, "source": "pattern"}


class Scripted(MemoryReplica):
    """A replica whose model finds these labels in these pieces of any text, and relates the first to the last."""

    score = 0.9

    def __init__(self, *pieces: tuple[str, str]) -> None:
        super().__init__()
        self.pieces = pieces

    async def extract(self, items, call):
        self.calls.append((items, call))
        return [self._found(item) for item in items]

    async def stream(self, item, call):
        found = self._found(item)
        for entity in found.entities:
            yield [entity]
        yield dataclasses.replace(found, entities=[])

    def _found(self, item) -> Extraction:
        at = [(item.text.index(piece), piece, label) for piece, label in self.pieces if piece in item.text]
        listed = Listed(item.allowed)
        at = [one for one in at if not listed.allows(one[0], one[0] + len(one[1]))]
        entities = [Entity(start, start + len(piece), piece, label, self.score) for start, piece, label in sorted(at)]
        relations = []
        if item.relations and entities:
            ends = [
                RelationArgument(place, one.start, one.end, one.text, one.label)
                for place, one in ((0, entities[0]), (len(entities) - 1, entities[-1]))
            ]
            relations = [Relation(next(iter(item.relations)), 0.9, *ends)]
        return Extraction(entities, relations)


class Spans(Scripted):
    """A replica whose model relates two spans that are no entities, as GLiNER2 models do."""

    def _found(self, item) -> Extraction:
        ends = RelationArgument(None, 0, 3, "Ada", None), RelationArgument(None, 4, 8, "pays", None)
        return dataclasses.replace(super()._found(item), relations=[Relation("owns", 0.9, *ends)])


@pytest.fixture
def ask(serving):
    def send(replica, body, path="/v1/extract", **options):
        client = serving(replica, dataclasses.replace(OPTIONS, **options))
        return asyncio.run(client.post(path, json={"labels": ["person", "card"], "text": TEXT, **body}))

    return send


def found(response):
    assert response.status_code == 200, response.text
    return [(one["text"], one["label"], one["source"]) for one in response.json()["entities"]]


BOTH = ("Ada", "person"), ("4111 1111 1111 1111", "person")


def test_without_the_option_nothing_changes(ask):
    entity = ask(Scripted(*BOTH), {}).json()["entities"][1]
    assert (entity["label"], "source" in entity) == ("person", False)


def test_a_match_wins_over_the_models_label_and_borders(ask):
    assert ask(Scripted(*BOTH), {"recognizers": True}).json()["entities"][1] == CARD
    wide = ("Ada", "person"), ("pays with 4111 1111 1111 1111", "card")
    assert ask(Scripted(*wide), {"recognizers": True}).json()["entities"][1:] == [CARD]


def test_what_is_left_of_an_entity_that_no_recognizer_knows_stays(ask):
    merged = found(ask(Scripted((TEXT, "person")), {"recognizers": True}))
    assert merged == [("Ada pays with", "person", "model"), (CARD["text"], "card", "pattern")]
    nested = found(ask(Scripted((TEXT, "person")), {"recognizers": True, "flat_ner": False}))
    assert nested == [(TEXT, "person", "model"), (CARD["text"], "card", "pattern")]


def test_the_model_keeps_what_has_no_form_and_loses_what_must_have_one(ask):
    model = Scripted(("Ada", "person"), ("4111 1111 1111 1112", "card"))
    wrong = {"text": TEXT[:-1] + "2", "labels": ["person", "card"], "recognizers": True, "relations": ["pays with"]}
    response = ask(model, wrong)
    assert found(response) == [("Ada", "person", "model")]
    assert response.json()["relations"] == []


@pytest.mark.parametrize(
    ("label", "text", "stays"),
    [
        ("phone", "4111 1111 1111 1111", False),
        ("phone", "01.02.2023", False),
        ("phone", "536-22-1234", False),
        ("phone", "2345 6789", True),
        ("email", "ada at example", False),
        ("ssn", "X1234567", False),
        ("ssn", "536221234", True),
        ("ip", "version 1.2.3.4", False),
    ],
)
def test_what_does_not_look_like_its_label_is_no_entity(ask, label, text, stays):
    body = {"text": f"It is {text} here", "labels": [label], "recognizers": True}
    assert bool(found(ask(Scripted((text, label)), body))) is stays


def test_relations_hold_between_the_entities_of_the_answer(ask):
    for path in ("/v1/extract", "/v1/extract/stream"):
        response = ask(Scripted(*BOTH), {"recognizers": True, "relations": ["owns"]}, path)
        relation = json.loads(response.text.splitlines()[-1])["relations"][0]
        assert (relation["head"]["entity_idx"], relation["head"]["text"]) == (0, "Ada")
        expected = {name: CARD[name] for name in ("start", "end", "text", "label")} | {"entity_idx": 1}
        assert relation["tail"] == expected


def test_relations_of_spans_that_are_no_entities_stay(ask):
    relation = ask(Spans(), {"recognizers": True, "relations": ["owns"]}).json()["relations"][0]
    assert relation["head"] == {"entity_idx": None, "start": 0, "end": 3, "text": "Ada", "label": None}
    assert relation["tail"]["text"] == "pays"


def test_streams_and_batches_have_the_same_entities(ask, serving):
    alone = ask(Scripted(*BOTH), {"recognizers": True}).json()["entities"]
    lines = ask(Scripted(*BOTH), {"recognizers": True}, "/v1/extract/stream").text.splitlines()
    assert [json.loads(line)["entity"] for line in lines[:-1]] == alone
    body = {"texts": [TEXT, "Ada"], "labels": ["person", "card"], "recognizers": True}
    results = asyncio.run(serving(Scripted(*BOTH)).post("/v1/extract/batch", json=body)).json()["results"]
    assert [len(one["result"]["entities"]) for one in results] == [2, 1]
    assert results[0]["result"]["entities"] == alone


DECOY = {"person": "a human being", "card": {"returned": False}}


@pytest.mark.parametrize("options", [{}, {"recognizers": True}, {"recognizers": True, "flat_ner": False}])
def test_a_decoy_is_read_and_its_entities_are_not_returned(ask, options):
    """Neither those of the model nor those of a recognizer that uses its label."""
    model = Scripted(("4111", "card"), ("Ada", "person"), ("pays", "person"), ("1111", "card"))
    body = {"relations": ["owns"], **options}
    everything = ask(model, {**body, "labels": ["person", "card"]}).json()
    answer = ask(model, {**body, "labels": DECOY}).json()
    assert [one["text"] for one in answer["entities"]] == ["Ada", "pays"]
    assert answer["entities"] == [one for one in everything["entities"] if one["label"] != "card"]
    assert (len(everything["relations"]), answer["relations"]) == (1, []), "its tail is a card"
    assert model.calls[-1][0][0].labels == {"person": "a human being", "card": "card"}
    lines = ask(model, {**body, "labels": DECOY}, "/v1/extract/stream").text.splitlines()
    assert [json.loads(line)["entity"] for line in lines[:-1]] == answer["entities"]


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"labels": {"card": {"returned": "no"}}}, "labels.card.returned", "boolean"),
        ({"relations": {"owns": {"returned": False}}}, "relations.owns.returned", "unknown field"),
        ({"recognizers": ["CREDIT_CRD"]}, "recognizers.0", "CREDIT_CARD"),
        ({"recognizers": True, "phone_regions": ["US", "ZZ"]}, "phone_regions.1", "'ZZ'"),
        ({"recognizers": {"CREDIT_CRD": "card"}}, "recognizers.CREDIT_CRD", "CREDIT_CARD"),
        ({"recognizers": {"CREDIT_CARD": 1}}, "recognizers", ""),
        ({"recognizers": "yes"}, "recognizers", ""),
    ],
)
def test_an_unknown_recognizer_or_region_names_itself(ask, body, param, message):
    response = ask(Scripted(), body)
    assert response.status_code == 422
    assert response.json()["error"]["param"].startswith(param)
    assert message in response.json()["error"]["message"]


def test_a_recognizer_that_is_named_needs_no_label(ask):
    body = {"labels": ["person"], "recognizers": ["CREDIT_CARD"]}
    assert found(ask(Scripted(("Ada", "person")), body))[1] == (CARD["text"], "CREDIT_CARD", "pattern")


def test_a_recognizer_may_have_a_label_that_the_model_is_not_asked_for(ask):
    model = Scripted(("Ada", "person"))
    body = {
        "labels": ["person"],
        "recognizers": {"CREDIT_CARD": "card", "IPv4": "address"},
        "text": f"{TEXT} 10.0.0.1 ::1",
    }
    answer = found(ask(model, body))
    assert answer[1:] == [(CARD["text"], "card", "pattern"), ("10.0.0.1", "address", "pattern")]
    assert list(model.calls[0][0][0].labels) == ["person"]


def test_regions_decide_which_numbers_are_phone_numbers(ask):
    body = {"text": "It is 01.42.68.53.00 there", "labels": ["phone"], "recognizers": True, "threshold": 0.7}
    assert found(ask(Scripted(), body | {"phone_regions": ["FR"]})) == [("01.42.68.53.00", "phone", "pattern")]
    assert found(ask(Scripted(), body | {"phone_regions": ["US"]})) == []
    assert found(ask(Scripted(), body, phone_regions=("FR",))) == [("01.42.68.53.00", "phone", "pattern")]


def test_a_setting_chooses_what_true_means(ask):
    assert found(ask(Scripted(), {"recognizers": True}, recognizers=("IBAN_CODE",))) == []
    assert found(ask(Scripted(), {"recognizers": True}, recognizers=("none",))) == []
    assert Settings.load({"recognizers": "CREDIT_CARD,IBAN_CODE"}).recognizers == ("CREDIT_CARD", "IBAN_CODE")
    for setting, value in (("recognizers", "CREDIT_CRD"), ("phone_regions", "US,ZZ")):
        with pytest.raises(SettingsError, match=rf"{setting}: no re\w+ '{value.split(',')[-1]}'"):
            Settings.load({setting: value})


def test_a_label_has_its_own_threshold_for_matches_too(ask):
    body = {"text": "It is 0151 12345678.", "labels": {"phone": {"threshold": 0.9}}, "recognizers": True}
    assert found(ask(Scripted(), body)) == []
    assert len(found(ask(Scripted(), body | {"labels": {"phone": {"threshold": 0.7}}}))) == 1


def test_more_matches_than_an_answer_may_have_are_an_error_or_cut(ask):
    text = "a@b.co " * 12
    response = ask(Scripted(), {"text": text, "labels": ["email"], "recognizers": True}, max_entities=5)
    assert (response.status_code, response.json()["error"]["param"]) == (422, "recognizers")
    cut = {"text": text, "labels": ["email"], "recognizers": True, "on_limit": "truncate"}
    response = ask(Scripted(), cut, max_entities=5)
    assert (len(found(response)), response.json()["warnings"][0]["code"]) == (5, "max_entities")


def test_the_client_gets_the_source(ask):
    answer = _parser(ExtractResponse)(ask(Scripted(*BOTH), {"recognizers": True}).content)
    assert answer.entities[1] == SourcedEntity(
        *(CARD[name] for name in ("start", "end", "text", "label", "score", "source"))
    )
    plain = _parser(ExtractResponse)(ask(Scripted(*BOTH), {}).content)
    assert type(plain.entities[0]) is Entity


def test_nemo_guardrails_has_them_by_default(serving):
    client = serving(Scripted(("4111 1111 1111 1111", "email")))
    body = {"messages": [{"role": "user", "content": TEXT}], "labels": ["credit_debit_card", "email"]}
    content = asyncio.run(client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]["content"]
    assert json.loads(content)["tagged_text"] == "Ada pays with [4111 1111 1111 1111](credit_debit_card)"


def post(serving, replica, path, body):
    return asyncio.run(serving(replica).post(path, json=body))


@pytest.mark.parametrize("asked", [True, ["CREDIT_CARD"], {"CREDIT_CARD": "CREDIT_CARD"}], ids=str)
@pytest.mark.parametrize("labels", [{}, {"labels": []}, {"labels": {}}, {"labels": None}], ids=str)
def test_recognizers_alone_need_no_model(serving, labels, asked):
    model = Scripted(("Ada", "person"))
    for path, body in (
        ("/v1/extract", {"text": TEXT}),
        ("/v1/extract/stream", {"text": TEXT}),
        ("/v1/extract/batch", {"texts": [TEXT, "Ada"]}),
    ):
        response = post(serving, model, path, {**body, **labels, "recognizers": asked})
        assert response.status_code == 200, response.text
        assert '"CREDIT_CARD"' in response.text
        assert response.text.count("4111 1111 1111 1111") == 1
    assert model.calls == []


def test_a_batch_asks_the_model_only_about_items_with_labels(serving):
    model = Scripted(("Ada", "person"))
    items = [{"text": TEXT}, {"text": "Ada", "labels": ["person"]}, {"text": "Bob 4111 1111 1111 1111"}]
    body = {"items": [item | {"recognizers": ["CREDIT_CARD"]} for item in items]}
    results = post(serving, model, "/v1/extract/batch", body).json()["results"]
    labels = [[entity["label"] for entity in one["result"]["entities"]] for one in results]
    assert labels == [["CREDIT_CARD"], ["person"], ["CREDIT_CARD"]]
    assert [[item.text for item in asked] for asked, _ in model.calls] == [["Ada"]]


@pytest.mark.parametrize("nothing", [{}, {"recognizers": False}, {"recognizers": []}, {"labels": [], "relations": []}])
def test_a_request_for_nothing_is_refused(serving, nothing):
    error = post(serving, Scripted(), "/v1/extract", {"text": TEXT, **nothing}).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_field", "labels")


def test_a_part_of_a_recognizers_name_gets_the_name(serving):
    error = post(serving, Scripted(), "/v1/extract", {"text": TEXT, "recognizers": ["EMAIL"]}).json()["error"]
    assert error["message"] == "recognizers.0: no recognizer 'EMAIL' (did you mean 'EMAIL_ADDRESS'?)"
