"""Wrong names of fields: all of them in one error, each with the name that was probably meant."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from gliner_bento.adapter_types import AdapterOptions
from gliner_bento.gateway.validation import from_model, from_validation
from gliner_bento.tasks.requests import ExtractBatchRequest, ExtractRequest

TEXT = {"text": "Ada met Charles."}


def error_of(model, body):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    return from_model(caught.value, model)


@pytest.mark.parametrize(
    ("model", "body", "param", "message"),
    [
        (
            ExtractRequest,
            TEXT | {"lables": ["x"]},
            "lables",
            "lables: unknown field (did you mean 'labels'?)",
        ),
        (ExtractRequest, {}, "text", "text: Field required"),
        (
            ExtractRequest,
            TEXT | {"labels": ["x"], "thresold": 1, "Relations": ["y"]},
            "thresold",
            "thresold: unknown field (did you mean 'threshold'?); Relations: unknown field (did you mean 'relations'?)",
        ),
        (ExtractRequest, TEXT | {"labels": ["x"], "foo(": 1}, "foo(", "foo(: unknown field"),
        (ExtractRequest, TEXT | {"labels": 1, "str": 1}, "str", "str: unknown field"),
        (
            ExtractRequest,
            TEXT | {"labels": ["x"], "deny_list": [{"value": "x", "pattern": "x"}]},
            "deny_list.0.value",
            "deny_list.0.value: unknown field",
        ),
        (
            ExtractBatchRequest,
            TEXT | {"labels": ["x"]},
            "text",
            "text: unknown field (did you mean 'texts'?)",
        ),
        (
            ExtractBatchRequest,
            {"items": [TEXT, {"txet": "a", "adapter": "b"}]},
            "items.1.txet",
            "items.1.txet: unknown field (did you mean 'text'?); "
            "items.1.adapter: unknown field (did you mean 'adapter_id'?); items.1.text: Field required",
        ),
        (AdapterOptions, {"pined": True}, "pined", "pined: unknown field (did you mean 'pinned'?)"),
        (
            ExtractRequest,
            TEXT | {"labels": {"person": {"treshold": 0.5}}},
            "labels.person.treshold",
            "labels.person.treshold: unknown field (did you mean 'threshold'?)",
        ),
        (
            ExtractRequest,
            TEXT | {"labels": ["x"], "relations": {"knows": {"tails": ["x"]}}},
            "relations.knows.tails",
            "relations.knows.tails: unknown field (did you mean 'tail'?)",
        ),
    ],
)
def test_wrong_names_are_reported_together(model, body, param, message):
    error = error_of(model, body)
    assert (error.code, error.param, error.message) == ("invalid_field", param, message)


def test_a_wrong_value_is_reported_where_all_names_are_right():
    error = error_of(ExtractRequest, TEXT | {"labels": ["x", ""], "threshold": 2})
    assert error.param == "labels.1"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"labels": {"person": {"threshold": 1.5}}}, "labels.person.threshold"),
        ({"labels": {"person": {"threshold": -0.1}}}, "labels.person.threshold"),
        ({"labels": {"person": {"threshold": float("nan")}}}, "labels.person.threshold"),
        ({"labels": {"person": {"threshold": "0.5"}}}, "labels.person.threshold"),
        ({"labels": {"person": {"description": " "}}}, "labels.person.description"),
        ({"labels": {"str": {"threshold": 2}}}, "labels.str.threshold"),
        ({"labels": {"person": 1}}, "labels.person"),
        ({"labels": {"person": None}}, "labels.person"),
        ({"labels": {"person": ""}}, "labels.person"),
        ({"labels": 1}, "labels"),
        ({"relations": {"knows": {"threshold": 2}}}, "relations.knows.threshold"),
        ({"relations": {"knows": {"head": []}}}, "relations.knows.head"),
        ({"relations": {"knows": {"tail": "x"}}}, "relations.knows.tail"),
        ({"relations": {"knows": {"tail": ["x", ""]}}}, "relations.knows.tail.1"),
        ({"relations": {"knows": ["x"]}}, "relations.knows"),
    ],
)
def test_a_wrong_value_of_a_label_or_relation_is_located(fields, param):
    error = error_of(ExtractRequest, TEXT | {"labels": ["x"]} | fields)
    assert error.param == param
    assert error.message.startswith(f"{param}: ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": 1}, "labels: Input should be a list, or a {name: description} object"),
        ({"labels": {"person": 1}}, "labels.person: Input should be a description, or an object with options"),
        ({"relations": {"knows": {"head": "x"}}}, "relations.knows.head: Input should be a valid list"),
        ({"recognizers": "all"}, "recognizers: Input should be true, false or a list"),
        ({"recognizers": [1]}, "recognizers.0: Input should be a valid string"),
    ],
)
def test_the_message_is_about_the_form_that_the_caller_has_chosen(fields, message):
    assert str(error_of(ExtractRequest, TEXT | {"labels": ["x"]} | fields)) == message


def test_without_the_type_nothing_is_suggested():
    errors = [{"type": "extra_forbidden", "loc": ("lables",), "msg": "Extra inputs are not permitted"}]
    assert from_validation(errors).message == "lables: unknown field"


def test_many_and_long_names_stay_a_short_message():
    start_s = time.thread_time()
    error = error_of(ExtractRequest, {"a" * 1_000_000 + str(i): 1 for i in range(20)})
    assert error.message.startswith("a" * 100 + ": unknown field; ")
    assert error.message.endswith("; and 16 more")
    assert len(error.message) < 1000
    assert time.thread_time() - start_s < 5, "seconds of this thread, whatever else runs"
