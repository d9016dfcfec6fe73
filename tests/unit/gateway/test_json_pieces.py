"""Large answers are sent in pieces: the same bytes, through the same routes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gliner_bento import pieces
from gliner_bento.errors import ErrorDetail
from gliner_bento.gateway import json_pieces
from gliner_bento.gateway.endpoint import json_response
from gliner_bento.gateway.json_pieces import is_large
from gliner_bento.replicas.messages import Outcomes, Reply, encode
from gliner_bento.types import (
    BatchResult,
    Entity,
    ExtractBatchResponse,
    Extraction,
    ExtractResponse,
    Relation,
    RelationArgument,
)

NUMBERS = st.integers(0, 2**40)
ENTITIES = st.builds(Entity, NUMBERS, NUMBERS, st.text(), st.text(), st.floats(0, 1))
ENDS = st.builds(RelationArgument, NUMBERS, NUMBERS, NUMBERS, st.text(), st.text())
RELATIONS = st.builds(Relation, st.text(), st.floats(0, 1), ENDS, ENDS)
EXTRACTIONS = st.builds(Extraction, st.lists(ENTITIES, max_size=9), st.lists(RELATIONS, max_size=5))
RESULTS = st.builds(BatchResult, st.none() | EXTRACTIONS, st.none() | st.builds(ErrorDetail, st.text(), st.text()))


async def joined(answer: Any) -> bytes:
    return b"".join([piece async for piece in json_pieces.json_pieces(answer)])


@settings(deadline=None, max_examples=20)
@given(st.lists(RESULTS, max_size=5), EXTRACTIONS, st.integers(1, 4))
def test_the_pieces_are_the_whole(results: list[BatchResult], one: Extraction, elements: int) -> None:
    single = ExtractResponse(
        entities=one.entities, relations=one.relations, model="m", adapter_id=None, request_id="r", truncated_at=3
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "_ELEMENTS", elements)
        patch.setattr(pieces, "PIECE_BYTES", 10)
        for answer in (single, ExtractBatchResponse(results, "m", "r")):
            assert asyncio.run(joined(answer)) == msgspec.json.encode(answer)
    outcomes = Outcomes([Reply(result.result, result.error) for result in results], 7)
    assert b"".join(outcomes.encoded()) == encode(outcomes)


@pytest.mark.parametrize("number", [0, 15, 16, 70_000])
def test_a_list_of_any_length_is_encoded_in_pieces(number: int) -> None:
    outcomes = Outcomes([Reply()] * number)
    assert b"".join(outcomes.encoded()) == encode(outcomes)


def test_only_a_large_answer_is_streamed() -> None:
    entity = Entity(0, 1, "a", "x", 0.5)
    small = ExtractResponse(entities=[entity] * 1999, model="m", adapter_id=None, request_id="r")
    large = replace(small, entities=[entity] * 2000)
    batch = ExtractBatchResponse([BatchResult(result=Extraction([entity] * 1000))] * 2, "m", "r")
    assert [is_large(answer) for answer in (small, large, batch, None)] == [False, True, True, False]
    assert "content-length" in json_response(small).headers
    assert "content-length" not in json_response(large).headers


def test_a_client_gets_a_large_answer_whole(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"text": "Ada met Charles.", "labels": ["person"], "request_id": "r"}
    whole = asyncio.run(client.post("/v1/extract", json=fields))
    monkeypatch.setattr(json_pieces, "MIN_RESULTS", 1)
    streamed = asyncio.run(client.post("/v1/extract", json=fields))
    assert "content-length" not in streamed.headers
    assert streamed.headers["x-request-id"] == "r"
    assert json.loads(streamed.content) == json.loads(whole.content)
