"""The settings `label_thresholds`, `relation_thresholds` and `review_band`, in requests to the gateway."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento.client.calls import _parser
from gliner_bento.tasks.extraction import (
    Entity,
    EntityInReview,
    ExtractResponse,
    SourcedEntity,
    SourcedEntityInReview,
    StreamedEntity,
)

BODY = {"text": "from Oslo to Bergen", "labels": ["city", "person"], "relations": ["near"]}
OWN = {"label_thresholds": {"city": 0.2, "river": 0.9}, "relation_thresholds": {"near": 0.7}}
SCORES = (0.3, 0.45, 0.6, 0.75)


class Scored(MemoryReplica):
    """A replica whose entities, in order of position, have these scores."""

    async def extract(self, items, call):
        return [self._scored(result) for result in await super().extract(items, call)]

    async def stream(self, item, call):
        (result,) = await self.extract([item], call)
        yield result.entities
        yield dataclasses.replace(result, entities=[])

    def _scored(self, result):
        scored = zip(result.entities, SCORES, strict=False)
        return dataclasses.replace(result, entities=[dataclasses.replace(one, score=score) for one, score in scored])


@pytest.fixture
def send(serving):
    def ask(replica, body, path="/v1/extract", **options):
        client = serving(replica, dataclasses.replace(OPTIONS, **options))
        response = asyncio.run(client.post(path, json={**BODY, **body}))
        assert response.status_code == 200, response.text
        return response

    return ask


@pytest.mark.parametrize(
    ("body", "of_labels", "of_relations"),
    [
        ({}, {"city": 0.2}, {"near": 0.7}),
        ({"threshold": 0.5}, {}, {"near": 0.7}),
        ({"relation_threshold": 0.0}, {"city": 0.2}, {}),
        ({"labels": {"city": {"threshold": 0.8}, "river": "a river"}}, {"city": 0.8, "river": 0.9}, {"near": 0.7}),
        ({"threshold": 0.5, "labels": {"city": {"threshold": 0.8}}}, {"city": 0.8}, {"near": 0.7}),
        ({"relations": {"near": {"threshold": 0.1}}}, {"city": 0.2}, {"near": 0.1}),
    ],
)
def test_a_labels_threshold_is_the_default_where_the_request_has_none(body, of_labels, of_relations, send):
    replica = MemoryReplica()
    send(replica, body, **OWN)
    (item,) = replica.calls[0][0]
    assert (item.label_thresholds, item.relation_thresholds) == (of_labels, of_relations)
    assert item.threshold == body.get("threshold", OPTIONS.default_threshold)


TEXT = "Anna met Bill, Carl and Dora"


def test_entities_in_the_band_are_marked(send):
    entities = send(Scored(), {"text": TEXT}, review_band=(0.45, 0.6)).json()["entities"]
    assert [(one["score"], one.get("review")) for one in entities] == [
        (0.3, None), (0.45, True), (0.6, True), (0.75, None),
    ]  # fmt: skip
    lines = send(Scored(), {"text": TEXT}, "/v1/extract/stream", review_band=(0.45, 0.6)).text.splitlines()
    assert [json.loads(line)["entity"].get("review") for line in lines[:-1]] == [None, True, True, None]


def test_matches_of_recognizers_are_marked_too(send):
    body = {"text": "Anna, a@b.com", "recognizers": True, "labels": ["person", "e-mail"]}
    entities = send(Scored(), body, review_band=(0.0, 1.0)).json()["entities"]
    assert [(one["source"], one["review"]) for one in entities] == [("model", True), ("pattern", True)]


def test_without_a_band_the_answer_has_the_same_bytes(send):
    """Byte for byte what a server without the setting answers, and the entities keep their fields."""
    plain = send(Scored(), {"text": TEXT, "request_id": "r"})
    outside = send(Scored(), {"text": TEXT, "request_id": "r"}, review_band=(0.9, 1.0))
    assert plain.content == outside.content
    assert plain.content.startswith(b'{"entities":[{"start":0,"end":4,"text":"Anna","label":"city","score":0.3},{"st')


def test_clients_read_marked_entities(send):
    basic = {"start": 0, "end": 1, "text": "a", "label": "b", "score": 0.5}
    parse = _parser(StreamedEntity)
    for more, kind in (
        ({}, Entity),
        ({"source": "model"}, SourcedEntity),
        ({"review": True}, EntityInReview),
        ({"source": "pattern", "review": True}, SourcedEntityInReview),
    ):
        assert type(parse(json.dumps({"entity": basic | more}).encode()).entity) is kind
    answer = _parser(ExtractResponse)(send(Scored(), {"text": TEXT}, review_band=(0.45, 0.6)).content)
    assert [type(one) for one in answer.entities[:2]] == [Entity, EntityInReview]
