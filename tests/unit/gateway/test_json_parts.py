"""Answers of any form in parts: the same bytes, and what is not needed yet is not made."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gliner_bento.errors import ErrorDetail, GLiNERBentoError, from_detail
from gliner_bento.gateway import json_parts
from gliner_bento.gateway.endpoint import json_response
from gliner_bento.gateway.json_parts import LazySequence, LazyText, json_text
from gliner_bento.http import pieces
from gliner_bento.replicas.base import Outcome
from gliner_bento.replicas.messages import OutcomesMessage
from gliner_bento.tasks.extraction import (
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
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(0, 1) | st.text() | ENTITIES,
    lambda values: st.lists(values, max_size=5) | st.dictionaries(st.text(), values, max_size=5),
    max_leaves=20,
)
ENTITY = Entity(0, 1, "a", "x", 0.5)


def plain(outcome: Outcome) -> Any:
    return msgspec.json.encode(outcome.detail() if isinstance(outcome, GLiNERBentoError) else outcome)


def joined(answer: Any) -> bytes:
    return b"".join(json_parts.json_parts(answer))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_parts, "_PART_BYTES", 10)
    monkeypatch.setattr(json_parts, "_FEW_ELEMENTS", 2)


@settings(deadline=None, max_examples=20)
@given(st.lists(RESULTS, max_size=5), EXTRACTIONS)
@pytest.mark.usefixtures("small_parts")
def test_the_parts_are_the_whole(results: list[BatchResult], one: Extraction) -> None:
    single = ExtractResponse(
        entities=one.entities, relations=one.relations, model="m", adapter_id=None, request_id="r", truncated_at=3
    )
    for answer in (single, ExtractBatchResponse(results, "m", "r")):
        assert joined(answer) == msgspec.json.encode(answer)
    outcomes = [from_detail(result.error) if result.error else result.result or one for result in results]
    read, tokens_run = OutcomesMessage.read(b"".join(OutcomesMessage.of(outcomes, 7)))
    assert tokens_run == 7
    assert list(map(plain, read)) == list(map(plain, outcomes))


@settings(deadline=None)
@given(JSON, st.lists(JSON, max_size=5))
@pytest.mark.usefixtures("small_parts")
def test_the_parts_of_any_json_are_the_whole(answer: Any, values: list[Any]) -> None:
    assert joined(answer) == msgspec.json.encode(answer)
    assert joined({"a": [LazySequence(str, values)]}) == msgspec.json.encode({"a": [[str(one) for one in values]]})
    assert joined(json_text(answer)) == msgspec.json.encode(msgspec.json.encode(answer).decode())


def test_a_text_of_pieces_is_one_text() -> None:
    assert (
        joined([LazyText(lambda: ["a", '"b"', "", "ü" * 50_000])])
        == json.dumps(['a"b"' + "ü" * 50_000], ensure_ascii=False).encode()
    )


@pytest.mark.parametrize("number", [0, 15, 16, 70_000])
def test_a_list_of_any_length_is_encoded_in_pieces(number: int) -> None:
    read, tokens_run = OutcomesMessage.read(b"".join(OutcomesMessage.of([Extraction([ENTITY])] * number, 3)))
    assert (list(map(plain, read)), tokens_run) == ([plain(Extraction([ENTITY]))] * number, 3)


@pytest.mark.parametrize(
    "answer",
    [
        Extraction([ENTITY] * 20_000),
        ExtractBatchResponse([BatchResult(result=Extraction([ENTITY] * 100))] * 200, "m", "r"),
        {"entities": {"x": [[{"text": "a"}] * 300] * 100}},
        LazySequence(str, range(100_000)),
        [Entity(0, 9, "long " * 2000, "x", 0.5)] * 100,
        {"text": "\u00fc" * 2**20},
        json_text(["a" * 2**20]),
    ],
)
def test_parts_are_small(answer: Any) -> None:
    parts = list(json_parts.json_parts(answer))
    assert len(parts) > 10
    assert max(map(len, parts)) < pieces.PIECE_BYTES


def test_what_is_lazy_is_made_when_it_is_written() -> None:
    made: list[int] = []
    parts = json_parts.json_parts(
        {"entities": LazySequence(lambda number: made.append(number) or ENTITY, range(10_000))}
    )
    assert pieces.next_piece(parts)
    assert 0 < len(made) < 5000
    assert len(list(parts)) > 1
    assert made == list(range(10_000))


def test_a_small_answer_is_encoded_in_one_go() -> None:
    assert (
        len(list(json_parts.json_parts(ExtractResponse([ENTITY] * 4, model="m", adapter_id=None, request_id="r")))) == 1
    )


def test_only_a_large_answer_is_streamed() -> None:
    small = ExtractResponse(entities=[ENTITY] * 1000, model="m", adapter_id=None, request_id="r")
    large = ExtractResponse(entities=[ENTITY] * 2000, model="m", adapter_id=None, request_id="r")
    assert int(json_response(small).headers["content-length"]) == len(msgspec.json.encode(small))
    assert "content-length" not in json_response(large).headers
