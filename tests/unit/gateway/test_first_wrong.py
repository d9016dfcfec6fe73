"""A body with very many wrong elements costs one error, which names the first of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gateway_options import OPTIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.compat.fastino import FastinoRequest
from gliner_bento.gateway.compat.nemo_guardrails import ChatCompletionRequest
from gliner_bento.gateway.compat.vllm_factory import PoolingRequest
from gliner_bento.gateway.validation import from_model
from gliner_bento.tasks.fields import MAX_FIELDS, Elements
from gliner_bento.tasks.requests import ExtractBatchRequest, ExtractRequest

pytestmark = pytest.mark.long

MANY = 500
LISTS: list[Any] = [[0] * MANY, [{}] * MANY, ["a"] * MANY + [0] * MANY]
OBJECTS: list[Any] = [{f"a{number}": wrong for number in range(MANY)} for wrong in (0, {"x": 0})]
REQUESTS = {endpoint.request for endpoint in GatewayApp(OPTIONS).endpoints if endpoint.request}
NESTED = [
    (PoolingRequest, lambda many: {"data": {"labels": many}}),
    (PoolingRequest, lambda many: {"data": {"schema": {"entities": many, "relations": many}}}),
    (FastinoRequest, lambda many: {"schema": {"entities": many, "relations": many}}),
    (ChatCompletionRequest, lambda many: {"messages": [{"content": many}]}),
    (ExtractRequest, lambda many: {"relations": {"a": {"head": many, "tail": many}}}),
    (ExtractRequest, lambda many: {"labels": {"a": many}, "relations": {"a": many}}),
    (ExtractBatchRequest, lambda many: {"items": [{"text": "a", "labels": many}] * 50}),
]


def hostile_bodies() -> Iterator[tuple[type[BaseModel], Any]]:
    for many in (*LISTS, *OBJECTS):
        for request in REQUESTS:
            yield request, many
            yield from ((request, {field.alias or name: many}) for name, field in request.model_fields.items())
        yield from ((request, body(many)) for request, body in NESTED)


def errors_of(request: type[BaseModel], body: Any) -> int:
    try:
        request.model_validate_json(json.dumps(body))
    except InvalidField:
        return 1
    except ValidationError as invalid:
        return invalid.error_count()
    return 0


def test_no_request_collects_many_errors():
    numbers = [errors_of(request, body) for request, body in hostile_bodies()]
    assert max(numbers) <= 4 * MAX_FIELDS
    assert sum(map(bool, numbers)) > 100


@pytest.mark.parametrize(
    ("many", "message"),
    [
        ([0] * MANY, "labels.0: Input should be a valid string"),
        (["a"] * 777 + [0] * MANY, "labels.777: Input should be a valid string"),
        ({"a": "b", **OBJECTS[0]}, "labels.a0: Input should be a description, or an object with options"),
        ({"a": "b", **OBJECTS[1]}, "labels.a0.x: unknown field"),
        ({"a": OBJECTS[0]}, f"labels.a: {MANY} fields; the limit is {MAX_FIELDS}"),
    ],
)
def test_the_error_names_the_first_wrong_element(many, message):
    with pytest.raises(ValidationError) as invalid:
        ExtractRequest.model_validate({"text": "a", "labels": many})
    assert str(from_model(invalid.value, ExtractRequest)) == message


def test_an_object_of_unknown_fields_is_refused_as_a_whole():
    with pytest.raises(ValidationError) as invalid:
        ExtractRequest.model_validate({"text": "a", "labels": ["a"], **OBJECTS[0]})
    assert str(from_model(invalid.value)) == f"body: {MANY + 2} fields; the limit is {MAX_FIELDS}"


@pytest.mark.parametrize("number", [0, 10, 11, 20, 21, 1000])
def test_what_is_valid_is_unchanged(number):
    names = [str(place) for place in range(number)]
    assert TypeAdapter(Elements[list[int]]).validate_python(names) == list(range(number))
    assert TypeAdapter(Elements[dict[str, int]]).validate_python(dict.fromkeys(names, "1")) == dict.fromkeys(names, 1)
