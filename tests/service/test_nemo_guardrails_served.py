"""The GLiNER NIM's format gives the entities of `/v1/extract`; NeMo Guardrails' own client reads them."""

from __future__ import annotations

import json

import pytest

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]


def test_the_entities_are_those_of_extract(service):
    body = {"messages": [{"role": "user", "content": TEXT}], "labels": LABELS, "flat_ner": False}
    answer = service.request("POST", "/v1/chat/completions", json=body).json()
    content = json.loads(answer["choices"][0]["message"]["content"])
    assert content["entities"] == service.extract(text=TEXT, labels=LABELS, threshold=0.5).json()["entities"]
    assert content["total_entities"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/nemo/v1/extract"])
def test_nemo_guardrails_own_client_reads_it(service, path):
    """The real package, which is no dependency; its transport is this app."""
    gliner = pytest.importorskip("nemoguardrails.library.gliner.request", reason="nemoguardrails is not installed")
    transport = pytest.importorskip("nemoguardrails.http.transport", reason="nemoguardrails is not installed")
    http_client = transport.HttpxHTTPClient(client=service.client)
    call = gliner.gliner_request(TEXT, f"http://service{path}", LABELS, 0.5, 384, 128, False, http_client=http_client)
    answer = service.loop.run_until_complete(call)
    assert answer["total_entities"] == 4
    assert answer["entities"][0]["value"] == "Bill Gates"
