"""Classifications: what a request may ask, one error per fault, and how scores become an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from doubles.memory_replica import MemoryReplica
from pydantic import ValidationError
from views import view

from gliner_bento.client import AsyncClient
from gliner_bento.errors import GLiNERBentoError, InvalidField
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.validation import from_model
from gliner_bento.tasks.classifications import (
    Classification,
    ClassificationResult,
    LabelScore,
    WindowScores,
    classification_options,
    results_of,
)
from gliner_bento.tasks.extraction import PARTS, ExtractionItem
from gliner_bento.tasks.requests import ExtractRequest

TONE = ["good", "bad"]


def decided(given: Any, max_labels: int = 10) -> Mapping[str, Classification]:
    """What a request's classifications become; raises the error of the response."""
    try:
        body = ExtractRequest.model_validate({"text": "a", "classifications": given})
    except ValidationError as invalid:
        raise from_model(invalid, ExtractRequest) from None
    return classification_options(body.classifications, default_threshold=0.4, max_labels=max_labels)


def test_options_are_decided() -> None:
    assert decided({"tone": TONE}) == {"tone": Classification({"good": "good", "bad": "bad"})}
    options = {"labels": {"a": "the first", "b": "b"}, "multi_label": True, "top_k": 3, "description": "Which letter?"}
    assert decided({"letter": options}) == {
        "letter": Classification(options["labels"], True, 0.4, 3, "max", description="Which letter?")
    }
    own = {"labels": TONE, "threshold": 0.0, "multi_label": True, "merge": "mean"}
    assert decided({"tone": own})["tone"] == Classification({one: one for one in TONE}, True, 0.0, None, "mean")
    assert decided({"x": {"labels": "a label of this name", "y": "another"}})["x"].labels["labels"]


def test_labels_in_groups_have_the_names_of_their_groups() -> None:
    groups = {"device": {"small": ["phone", "watch"], "large": {"tv": "a television"}}, "food": ["bread"]}
    labels = {"device.small.phone": "device.small.phone", "device.small.watch": "device.small.watch"}
    labels |= {"device.large.tv": "a television", "food.bread": "food.bread"}
    assert decided({"product": groups})["product"].labels == labels
    assert decided({"product": {"labels": groups}})["product"].labels == labels


def deep(levels: int) -> Any:
    return {"a": deep(levels - 1)} if levels else TONE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "classifications: Dictionary should have at least 1 item"),
        (["tone"], "classifications: Input should be a valid dictionary"),
        ({"": TONE}, "classifications.: String should have at least 1 character"),
        ({"tone": []}, "classifications.tone: List should have at least 1 item"),
        ({"tone": {}}, "classifications.tone: Dictionary should have at least 1 item"),
        ({"tone": "good"}, "classifications.tone: Input should be a valid dictionary"),
        ({"tone": {"labels": []}}, "classifications.tone.labels: List should have at least 1 item"),
        ({"tone": {"a": {"b": []}}}, "classifications.tone.a.b: List should have at least 1 item"),
        ({"tone": {"a": 3, "b": "b"}}, "classifications.tone.a: Input should be a valid dictionary"),
        ({"tone": [3, "a"]}, "classifications.tone.0: Input should be a valid string"),
        ({"tone": {"labels": TONE, "topk": 1}}, "classifications.tone.topk: unknown field (did you mean 'top_k'?)"),
        ({"tone": {"labels": TONE, "top_k": 0}}, "classifications.tone.top_k: Input should be greater than or equal"),
        ({"tone": {"labels": TONE, "threshold": 2}}, "classifications.tone.threshold: Input should be less than or"),
        ({"tone": {"labels": TONE, "merge": "sum"}}, "classifications.tone.merge: Input should be 'mean' or 'max'"),
        ({"tone": ["good", "bad", "good"]}, "classifications.tone: 'good' is repeated"),
        ({"tone": {"a.b": "x", "a": ["b"]}}, "classifications.tone: 'a.b' is repeated"),
        ({"tone": {"a": "x", "b": "x"}}, "classifications.tone: two labels have the same description"),
        ({"tone": ["good"]}, "classifications.tone: one label always has the score 1"),
        ({"tone": TONE, "letter": list("abcdefghi")}, "classifications: 11 labels; the limit is 10 (max_labels)"),
        ({"tone": deep(300)}, "classifications: objects are nested in more than 10 levels"),
    ],
)
def test_each_fault_is_one_error_that_names_it(given: Any, message: str) -> None:
    with pytest.raises(GLiNERBentoError) as caught:
        decided(given)
    assert caught.value.message.startswith(message)
    assert caught.value.param == message.partition(": ")[0]


def test_the_best_labels_above_the_threshold_are_the_answer() -> None:
    labels = {name: name for name in "abc"}
    asked = {
        "best": Classification(labels),
        "none": Classification(labels, threshold=0.9),
        "many": Classification(labels, True, 0.2, None),
        "two": Classification(labels, top_k=2),
    }
    answer = results_of(asked, dict.fromkeys(asked, (0.2, 0.1, 0.7)))
    found = {name: [one.label for one in result.labels] for name, result in answer.items()}
    assert found == {"best": ["c"], "none": [], "many": ["c", "a"], "two": ["c", "a"]}
    assert answer["best"] == ClassificationResult([LabelScore("c", 0.7)], None)
    assert results_of(asked)["many"] == ClassificationResult()  # a blank text


def test_windows_are_merged_whatever_their_order() -> None:
    labels = {"a": "a", "b": "b"}
    asked = {"mean": Classification(labels, top_k=None), "max": Classification(labels, True, merge="max")}
    scores = [{"mean": (0.1, 0.9), "max": (0.1, 0.2)}, {"mean": (0.7, 0.3), "max": (0.8, 0.1)}]
    scores.append({"mean": (0.3, 0.7), "max": (0.3, 0.3)})
    merged = []
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        windows = WindowScores()
        for number in order:
            for name, one in scores[number].items():  # in several passes
                windows.add(number, {name: one})
        merged.append(windows.results(asked))
    assert merged[0] == merged[1] == merged[2]
    assert merged[0] == {
        "mean": ClassificationResult(
            [LabelScore("b", (0.9 + 0.3 + 0.7) / 3), LabelScore("a", (0.1 + 0.7 + 0.3) / 3)], "mean"
        ),
        "max": ClassificationResult([LabelScore("a", 0.8)], "max"),
    }


def ask(replica: MemoryReplica, scene: Any) -> Any:
    async def asked() -> Any:
        app = GatewayApp(view(GatewayOptions))
        app.bind(replica)
        async with AsyncClient("http://test", transport=httpx.ASGITransport(app)) as client:
            return await scene(client)

    return asyncio.run(asked())


def test_every_route_of_extraction_classifies() -> None:
    options = {"classifications": {"tone": {"labels": TONE, "top_k": 2}}}
    expected = {"tone": ClassificationResult([LabelScore("good", 0.5), LabelScore("bad", 0.25)])}
    text = "good bad good yes"

    async def scene(client: AsyncClient) -> Any:
        return (
            await client.extract(text, **options),
            await client.extract_batch([text, ""], **options),
            [line async for line in client.extract_stream(text, **options)],
            await client.extract("Ada", ["person"], **options),
        )

    one, batch, lines, both = ask(MemoryReplica(), scene)
    assert one.classifications == batch.results[0].result.classifications == lines[-1].classifications == expected
    assert batch.results[1].result.classifications == {"tone": ClassificationResult([])}
    assert (both.entities[0].text, list(both.classifications)) == ("Ada", ["tone"])


def test_a_model_that_cannot_classify_is_named_before_it_is_called() -> None:
    replica = MemoryReplica()
    replica.model = replace(replica.model, model="ner-only", tasks=("entities", "relations"))

    async def scene(client: AsyncClient) -> list[str]:
        await client.extract("Ada", ["person"])
        before = len(replica.calls)
        messages = []
        for send in (client.extract, lambda text, **options: client.extract_batch([text], **options)):
            for options in ({"classifications": {"tone": TONE}}, {}):
                try:
                    answer = await send("Ada", **options)
                    messages.append(answer.results[0].error.message)
                except InvalidField as error:
                    messages.append(error.message)
        assert len(replica.calls) == before
        return messages

    refused = (
        "classifications: 'ner-only' does not support the task classifications; it supports entities and relations"
    )
    missing = f"labels: Field required, or {' or '.join(part.option for part in PARTS[1:])}"
    assert ask(replica, scene) == [refused, missing, refused, missing]


def test_an_item_says_what_it_asks_for() -> None:
    item = ExtractionItem("a", {"x": "x"}, classifications={"tone": Classification({"good": "fine", "bad": "b"})})
    assert item.abilities == {"labels": "entities", "classifications": "classifications"}
    assert item.chars == len("a" + "x" + "fine" + "b")
