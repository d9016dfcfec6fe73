"""The public types: what is accepted, what is refused, and with which words."""

import dataclasses
from typing import get_args, get_type_hints

import pytest
from pydantic import ValidationError

from gliner_bento.adapter_types import AdapterInfo, AdapterOptions, PutAdapterRequest
from gliner_bento.adapters.base import Source
from gliner_bento.status_types import AbortResponse, ModelCard, ModelInfo
from gliner_bento.tasks.base import ExtractionWarning, Usage
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import (
    PARTS,
    BatchResult,
    Entity,
    ExtractBatchResponse,
    Extraction,
    ExtractionOptions,
    ExtractResponse,
    LongText,
    Relation,
    RelationArgument,
    StreamedEnd,
    StreamedEntity,
)
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.part import Mergers
from gliner_bento.tasks.requests import ExtractBatchRequest, ExtractItem, ExtractRequest, RequestOptions

PUBLIC_TYPES = [
    *(AbortResponse, BatchResult, Entity, ExtractBatchRequest, ExtractBatchResponse, ExtractItem, ExtractRequest),
    *(ExtractResponse, Extraction, ExtractionOptions, ExtractionWarning, Item, ModelCard, ModelInfo, Relation),
    *(RelationArgument, StreamedEnd, StreamedEntity, Usage),
]
OPTIONS = {field.name: field for field in dataclasses.fields(ExtractionOptions)}
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
        ("relation_window", "sentence"),
        ("relation_window_sentences", 0),
        ("relation_window_overlap_sentences", -1),
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
    for name, field in OPTIONS.items():
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
    parsed = PutAdapterRequest.model_validate({})
    assert (parsed.source, parsed.revision, parsed.pinned) == (None, None, None)
    assert (parsed.preload, parsed.replace) == (True, False)


@pytest.mark.parametrize(("written", "value"), [("true", True), ("false", False), ("1", True), ("0", False)])
def test_options_of_an_adapter_may_be_written_in_a_query(written, value):
    parsed = AdapterOptions.model_validate_strings({"pinned": written, "preload": written})
    assert (parsed.pinned, parsed.preload) == (value, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("source", ""), ("source", 1), ("revision", " "), ("pinned", 1), ("preload", None), ("preload", "no"), ("pin", 1)],
)
def test_a_wrong_field_of_an_adapter_is_named(field, value):
    with pytest.raises(ValidationError) as caught:
        PutAdapterRequest.model_validate({field: value})
    assert [error["loc"] for error in caught.value.errors()] == [(field,)]


def test_an_adapters_source_is_one_that_is_stored():
    """The public types import no adapters."""
    assert get_args(get_type_hints(AdapterInfo)["source"]) == get_args(Source)


def test_the_options_of_a_text_are_declared_once():
    """`ExtractionOptions` has them; an item and all requests have every one of them, and an item the limits."""
    options = set(OPTIONS)
    limits = {"max_entities", "max_relations", "review_band"}
    of_names = {"label_thresholds", "decoys", "relation_thresholds", "relation_heads", "relation_tails"}
    found = {"allowed", "denied"}
    assert {field.name for field in dataclasses.fields(Item)} == options | limits | of_names | found | {"text"}
    assert set(ExtractItem.model_fields) == options | {"text"}
    assert set(ExtractRequest.model_fields) == options | set(RequestOptions.model_fields) | {"text"}
    assert set(ExtractBatchRequest.model_fields) == options | set(RequestOptions.model_fields) | {"texts", "items"}


def test_an_item_has_the_defaults_of_a_request():
    """All but the thresholds and limits, whose defaults are settings."""
    for field in dataclasses.fields(Item):
        is_setting = "threshold" in field.name or field.name.startswith("max_")
        if field.default is not dataclasses.MISSING and not is_setting:
            assert field.default == OPTIONS[field.name].default, field.name


def test_an_option_of_an_item_has_the_description_of_the_requests():
    for name in OPTIONS:
        assert ExtractItem.model_fields[name].description == ExtractRequest.model_fields[name].description


def test_the_last_line_of_a_stream_is_an_answer_without_its_entities():
    answer, end = ({field.name for field in dataclasses.fields(kind)} for kind in (ExtractResponse, StreamedEnd))
    assert end == answer - {"entities"}
    assert {field.name for field in dataclasses.fields(Extraction)} <= answer


def test_every_part_has_its_fields():
    of_items, of_ends = ({field.name for field in dataclasses.fields(kind)} for kind in (Item, StreamedEnd))
    assert {part.option for part in PARTS} <= set(OPTIONS) & of_items
    results = {part.result for part in PARTS if part.result}
    assert results - {"entities"} <= of_ends
    blank = Extraction.blank(
        Item("", classifications={"c": Classification({"a": "a", "b": "b"})}, structures={"s": {}})
    )
    for part in PARTS:
        assert not part.result or not list(part.rows(getattr(blank, part.result)))
        assert bool(part.columns) == bool(part.result)


class Adding:
    """A merger that adds an entity to a result, and to each step of a stream."""

    def __init__(self, label):
        self.entity = Entity(0, 1, "a", label, 1.0)

    def add(self, parts):
        return [*parts, self.entity]

    def whole(self, result):
        return dataclasses.replace(result, entities=[*result.entities, self.entity])


def test_parts_without_a_model_add_to_a_result_in_order():
    mergers = Mergers([Adding("first"), Adding("second")])
    assert [entity.label for entity in mergers.add(())] == ["first", "second"]
    assert [entity.label for entity in mergers.whole(Extraction(())).entities] == ["first", "second"]


def test_what_to_do_with_a_long_text_is_one_type_everywhere():
    assert get_type_hints(Item)["long_text"] == LongText
    assert ExtractRequest.model_fields["long_text"].annotation == LongText


def test_answers_cannot_be_changed():
    """They are shared between the scheduler's threads and the event loop."""
    for kind in PUBLIC_TYPES:
        if dataclasses.is_dataclass(kind):
            made = kind.__dataclass_params__
            assert made.frozen or made.unsafe_hash, kind  # by `frozen`, with which mypy refuses a change
            fields = [field.name for field in dataclasses.fields(kind)]
            assert not hasattr(kind(**dict.fromkeys(fields)), "__dict__"), kind
