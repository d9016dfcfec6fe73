"""The public types: what is accepted, what is refused, and with which words."""

import pytest
from pydantic import ValidationError

from gliner_bento import types
from gliner_bento.adapters import base
from gliner_bento.types import (
    AdapterCard,
    AdapterOptions,
    ExtractBatchRequest,
    ExtractItem,
    ExtractOptions,
    ExtractRequest,
    PutAdapterRequest,
)

GOOD = {"text": "Ada Lovelace lived in London.", "labels": ["person", "city"]}


def errors_of(body: dict) -> list[dict]:
    with pytest.raises(ValidationError) as caught:
        ExtractRequest.model_validate(body)
    return caught.value.errors()


def accepts(model, field, value):
    try:
        model.model_validate(GOOD | {field: value})
    except ValidationError:
        return False
    return True


def test_a_minimal_request_has_the_documented_defaults():
    request = ExtractRequest.model_validate(GOOD)
    assert (request.flat_ner, request.multi_label, request.long_text, request.priority) == (True, False, "window", 0)
    assert (request.window_words, request.window_overlap_words) == (None, None)
    assert request.threshold is None
    assert request.relations is None


@pytest.mark.parametrize("labels", [["person"], {"person": "a human being"}])
def test_labels_are_names_or_described_names(labels):
    assert ExtractRequest.model_validate(GOOD | {"labels": labels}).labels == labels


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 5),
        ("text", None),
        ("labels", []),
        ("labels", {}),
        ("labels", [""]),
        ("labels", ["  "]),
        ("labels", ["x" * 1001]),
        ("labels", {"x": "y" * 1001}),
        ("relations", ["x" * 1001]),
        ("labels", {"": "x"}),
        ("labels", {"x": " "}),
        ("labels", "person"),
        ("relations", [""]),
        ("threshold", -0.1),
        ("threshold", 1.1),
        ("threshold", "0.5"),
        ("threshold", float("nan")),
        ("threshold", True),
        ("relation_threshold", 2),
        ("flat_ner", "yes"),
        ("multi_label", 1),
        ("long_text", "whole"),
        ("window_words", 0),
        ("window_words", -1),
        ("window_words", 100_001),
        ("window_words", 64.5),
        ("window_words", "64"),
        ("window_words", True),
        ("window_overlap_words", -1),
        ("window_overlap_words", 100_001),
        ("window_overlap_words", "0"),
        ("request_id", "has space"),
        ("request_id", "x" * 129),
        ("timeout_ms", 0),
        ("timeout_ms", float("inf")),
        ("priority", 1.5),
        ("priority", 1001),
        ("thresold", 0.5),
    ],
)
def test_a_wrong_field_is_named(field, value):
    assert {error["loc"][0] for error in errors_of(GOOD | {field: value})} == {field}


def test_an_error_does_not_repeat_the_input():
    with pytest.raises(ValidationError) as caught:
        ExtractRequest.model_validate({"text": ["a secret"], "labels": ["x"]})
    assert "secret" not in str(caught.value)


def test_a_batch_item_may_leave_all_options_to_the_batch():
    request = ExtractBatchRequest.model_validate({"items": [{"text": "a"}], "labels": ["x"]})
    assert request.items[0].labels is None
    assert (request.items[0].long_text, request.items[0].window_words) == (None, None)


def test_the_options_of_a_text_are_the_same_wherever_they_are_given():
    for name, field in ExtractOptions.model_fields.items():
        of_batch, of_item = ExtractBatchRequest.model_fields[name], ExtractItem.model_fields[name]
        assert of_item.default is None
        if name != "labels":
            assert of_batch.default == field.default
        for value in (0, -1, 1.5, "a", True, None, []):
            assert accepts(ExtractItem, name, value) == (value is None or accepts(ExtractRequest, name, value))


def test_every_field_of_a_request_is_described_or_shared():
    for name, field in ExtractRequest.model_fields.items():
        assert field.description, name


def test_options_of_an_adapter_leave_what_they_do_not_name():
    asked = PutAdapterRequest.model_validate({})
    assert (asked.source, asked.revision, asked.pinned, asked.preload) == (None, None, None, True)


@pytest.mark.parametrize(("written", "value"), [("true", True), ("false", False), ("1", True), ("0", False)])
def test_options_of_an_adapter_may_be_written_in_a_query(written, value):
    asked = AdapterOptions.model_validate_strings({"pinned": written, "preload": written})
    assert (asked.pinned, asked.preload) == (value, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("source", ""), ("source", 1), ("revision", " "), ("pinned", 1), ("preload", None), ("preload", "no"), ("pin", 1)],
)
def test_a_wrong_field_of_an_adapter_is_named(field, value):
    with pytest.raises(ValidationError) as caught:
        PutAdapterRequest.model_validate({field: value})
    assert [error["loc"] for error in caught.value.errors()] == [(field,)]


def test_the_gateway_and_the_adapters_mean_the_same():
    """They share no module."""
    assert types.BASE_ADAPTER_ID == base.BASE_ADAPTER_ID
    told = {name: field.annotation for name, field in AdapterCard.model_fields.items()}
    assert (told["source"], told["tier"]) == (base.Source, base.Tier)
