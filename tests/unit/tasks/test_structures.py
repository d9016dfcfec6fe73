"""Structures: what a request may ask, one error per fault, and how windows become an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.validation import from_model
from gliner_bento.settings import Settings
from gliner_bento.tasks.base import Limits
from gliner_bento.tasks.extraction import ExtractionOptions, decide
from gliner_bento.tasks.requests import ExtractRequest, request_of
from gliner_bento.tasks.structures import FieldValue, Structure, StructureField, WindowInstances, structure_options


def decided(given: Any) -> Mapping[str, Structure]:
    """What a request's structures become; raises the error of the response."""
    try:
        body = ExtractRequest.model_validate({"text": "a", "structures": given})
    except ValidationError as invalid:
        raise from_model(invalid, ExtractRequest) from None
    return structure_options(body.structures, default_threshold=0.4, max_labels=10)


def test_options_are_decided() -> None:
    options = {"type": "string", "choices": ["new", "used"], "threshold": 0.1}
    given = {"car": {"brand": "who made it", "state": options, "owner": {}}, "person": ["name"]}
    assert decided(given) == {
        "car": {
            "brand": StructureField("who made it", "list", 0.4, own_threshold=False),
            "state": StructureField("state", "string", 0.1, ("new", "used")),
            "owner": StructureField("owner", "list", 0.4, own_threshold=False),
        },
        "person": {"name": StructureField("name", "list", 0.4, own_threshold=False)},
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "structures: Dictionary should have at least 1 item"),
        (["car"], "structures: Input should be a valid dictionary"),
        ({"car": []}, "structures.car: Value should have at least 1 item"),
        ({"car": {}}, "structures.car: Value should have at least 1 item"),
        ({"car": ["a", "a"]}, "structures.car: a field is repeated"),
        ({"car": {"a": 3}}, "structures.car.a: "),
        ({"car": {"a": {"choices": [1]}}}, "structures.car.a.choices.0: Input should be a valid string"),
        ({"car": {"a": {"choices": []}}}, "structures.car.a.choices: List should have at least 1 item"),
        ({"car": {"a": {"choices": ["x", "X"]}}}, "structures.car.a.choices: a choice is repeated"),
        ({"car": {"a": {"type": "number"}}}, "structures.car.a.type: "),
        ({"car": {"a": {"dtype": "str"}}}, "structures.car.a.dtype: unknown field"),
        ({"car": [str(n) for n in range(300)]}, "structures: 300 fields; the limit is 100"),
        ({"car": ["a"] * 6 + ["b"] * 6}, "structures.car: a field is repeated"),
        ({"a": list("abcdef"), "b": list("abcdef")}, "structures: 12 fields; the limit is 10 (max_labels)"),
        ({"a": {"b": {"choices": list("abcdefghijk")}}}, "structures: 11 choices; the limit is 10 (max_labels)"),
    ],
)
def test_each_fault_has_one_error(given: Any, message: str) -> None:
    with pytest.raises(InvalidField) as refused:
        decided(given)
    assert refused.value.message.startswith(message)
    assert message.startswith(str(refused.value.param))


def test_the_names_of_all_tasks_are_limited_together() -> None:
    options = ExtractionOptions(
        labels=["a"], relations=["r"], classifications={"c": ["x", "y", "z"]}, structures={"s": ["f", "g"]}
    )
    message = "classifications: 7 names, including labels and relations; the limit is 6"
    with pytest.raises(InvalidField, match=message) as refused:
        decide(options, Settings(max_labels=6).view(Limits))
    assert refused.value.param == "classifications"
    decide(options, Settings(max_labels=7).view(Limits))


def test_a_request_needs_something_to_find() -> None:
    body = vars(ExtractRequest.model_validate({"text": "a", "structures": {"car": ["brand"]}}))
    assert request_of(body).inputs[0][1].structures == {"car": ["brand"]}


def test_what_several_windows_find_counts_once() -> None:
    asked = {"car": {"brand": StructureField("brand", "list", 0.5)}, "none": {"x": StructureField("x", "list", 0.5)}}

    def instance(text: str, start: int, score: float) -> Mapping[str, Any]:
        return {"brand": [FieldValue(text, score, start, start + len(text))]}

    windows = WindowInstances()
    fiat = instance("Fiat", 90, 0.6)
    windows.add(1, {"car": [fiat, instance("Opel", 120, 0.9), fiat], "none": []})
    windows.add(0, {"car": [instance("Audi", 3, 0.7), instance("Fiat", 90, 0.8)], "none": []})
    windows.add(2, {})  # a pass for relations alone
    brands = [(one["brand"][0].text, one["brand"][0].score) for one in windows.results(asked)["car"]]
    assert brands == [("Audi", 0.7), ("Fiat", 0.8), ("Opel", 0.9)]
    assert windows.results(asked)["none"] == []
