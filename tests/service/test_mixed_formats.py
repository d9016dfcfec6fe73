"""Requests in the formats of all servers, 32 concurrently in one queue: each has the entities of `/v1/extract`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.sax.saxutils import quoteattr

import httpx
import pytest

from gliner_bento.privacy.recognizers.labels import label_of
from gliner_bento.settings.field_types import FORMATS

CONCURRENT = 32
TEXTS = [
    "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond.",
    "John works at Google in Mountain View.",
    "Ada Lovelace lived in London, and never met Tim Cook.",
    "Nobody wrote anything.",
    "In 1998 Larry Page and Sergey Brin founded Google; Sundar Pichai joined in 2004 and lives in California.",
    "Angela Merkel grew up in Templin. " * 6,
    "Siemens, Nokia and Toyota.",
]
LABELS = ["person", "organization", "date", "location"]
NAMES = ["PERSON", "ORGANIZATION", "LOCATION"]
THRESHOLD = 0.4

Entity = tuple[int, int, str, float]


@dataclass(frozen=True)
class Row:
    """A format: the request for a text, its entities in the answer, and the same request to `/v1/extract`."""

    path: str
    body: Callable[[str], dict[str, Any]]
    entities: Callable[[Any], list[dict[str, Any]]]
    same: dict[str, Any]


def plain(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return answer["entities"]


def label_studio_config() -> str:
    labels = "".join(f"<Label value={quoteattr(label)}/>" for label in LABELS)
    return f'<View><Labels name="label" toName="text">{labels}</Labels><Text name="text" value="$text"/></View>'


def of_label_studio(answer: dict[str, Any]) -> list[dict[str, Any]]:
    (prediction,) = answer["results"]
    assert prediction["error"] is None
    return [{**one["value"], "label": one["value"]["labels"][0], "score": one["score"]} for one in prediction["result"]]


def of_nemo(answer: dict[str, Any]) -> list[dict[str, Any]]:
    names = {"start": "start_position", "end": "end_position", "label": "suggested_label", "score": "score"}
    return [{own: one[name] for own, name in names.items()} for one in answer["entities"]]


def of_presidio(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "label": one["entity_type"]} for one in answer]


def of_labels(entities: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    values = [
        {**value, "label": label, "score": value["confidence"]} for label in entities for value in entities[label]
    ]
    return sorted(values, key=lambda value: value["start"])


def of_fastino(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return of_labels(answer["result"]["entities"])


SAME = {"labels": LABELS, "threshold": THRESHOLD}
ROWS = {
    "gliner_serve": Row("/gliner", lambda text: {"text": text, **SAME}, plain, SAME),
    "vllm_factory": Row(
        "/pooling", lambda text: {"data": {"text": text, **SAME}}, lambda one: one["data"], {**SAME, "flat_ner": False}
    ),
    "presidio": Row(
        "/analyze",
        lambda text: {"text": text, "language": "en", "entities": NAMES, "score_threshold": THRESHOLD},
        of_presidio,
        {"labels": {name: label_of(name, {}) for name in NAMES}, "threshold": THRESHOLD},
    ),
    "nemo_guardrails": Row(
        "/v1/chat/completions",
        lambda text: {"messages": [{"role": "user", "content": text}], **SAME},
        lambda one: json.loads(one["choices"][0]["message"]["content"])["entities"],
        SAME,
    ),
    "nemo_guardrails, earlier": Row("/nemo/v1/extract", lambda text: {"text": text, **SAME}, of_nemo, SAME),
    "label_studio": Row(
        "/predict",
        lambda text: {"tasks": [{"data": {"text": text}}], "label_config": label_studio_config()},
        of_label_studio,
        {"labels": LABELS},
    ),
    "djl": Row("/predictions/demo", lambda text: {"text": text, **SAME}, plain, SAME),
    "djl, one model": Row("/invocations", lambda text: {"text": text, **SAME}, plain, SAME),
    "fastino": Row(
        "/gliner-2",
        lambda text: {
            "task": "extract_entities",
            "text": text,
            "schema": LABELS,
            "threshold": THRESHOLD,
            "include_confidence": True,
            "include_spans": True,
            "format_results": True,
        },
        of_fastino,
        SAME,
    ),
    "vllm_factory, schema": Row(
        "/pooling",
        lambda text: {
            "data": {
                "text": text,
                "schema": {"entities": LABELS},
                "threshold": THRESHOLD,
                "include_confidence": True,
                "include_spans": True,
            }
        },
        lambda one: of_labels(one["data"]["entities"]),
        SAME,
    ),
    "huggingface": Row(
        "/pipeline/token-classification",
        lambda text: {"inputs": text, "parameters": SAME},
        lambda answer: [{**one, "label": one["entity_group"]} for one in answer],
        SAME,
    ),
    "our own": Row("/v1/extract", lambda text: {"text": text, **SAME}, plain, SAME),
}
WITHOUT_EXTRACTION = {"gliclass", "litellm", "nemo_jailbreak", "tei", "xinference"}
"""Formats without entities, or whose clients send extractions in another format."""


def entities_of(row: Row, answer: Any) -> list[Entity]:
    return [(one["start"], one["end"], one["label"], one["score"]) for one in row.entities(answer)]


def post(client: httpx.AsyncClient, row: Row, text: str) -> Awaitable[httpx.Response]:
    return client.post(row.path, json=row.body(text))


def abort_nothing(client: httpx.AsyncClient) -> Awaitable[httpx.Response]:
    """Xinference's only request that is no extraction."""
    return client.post("/v1/models/demo/requests/nobody/abort")


def test_every_format_has_a_row():
    assert {name.partition(",")[0] for name in ROWS} - {"our own"} == set(FORMATS) - WITHOUT_EXTRACTION


@pytest.mark.bento_only
def test_mixed_formats_have_the_entities_of_extract(service):
    sent = [(name, text) for text in TEXTS for name in ROWS]
    expected = {}
    for name, text in sent:
        response = service.extract(text=text, **ROWS[name].same)
        expected[name, text] = entities_of(ROWS["our own"], response.json())
    assert sum(map(len, expected.values())) > len(sent)
    for start in range(0, len(sent), CONCURRENT):
        part = sent[start : start + CONCURRENT]
        posts = [partial(post, row=ROWS[name], text=text) for name, text in part]
        *responses, aborted = service.gather(*posts, abort_nothing)
        assert aborted.json() == {"msg": "NOT_FOUND"}
        for (name, text), response in zip(part, responses, strict=True):
            assert response.status_code == 200, (name, response.text)
            answer, right = entities_of(ROWS[name], response.json()), expected[name, text]
            assert [one[:3] for one in answer] == [one[:3] for one in right], name
            assert [one[3] for one in answer] == pytest.approx([one[3] for one in right], abs=1e-4), name
