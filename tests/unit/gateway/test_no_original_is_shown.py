"""No value that was redacted is in a log, a metric, a trace, an error or a report of a fault."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import logging
import traceback

import httpx
import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento.gateway.app import GatewayApp

otel = pytest.importorskip("gliner_bento.telemetry.otel")
exports = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

NAME, OTHER, CARD, MAIL = "Ada Ng", "Bob Ek", "4111 1111 1111 1111", "ada.ng@example.org"
VALUES = (NAME, OTHER, CARD, "4111111111111111", MAIL)
TEXT = f"{NAME} ({MAIL}) pays with {CARD}"
SMALL = dataclasses.replace(OPTIONS, max_body_bytes=2**20, max_batch_items=20, max_labels=10, max_text_chars=200)
GUARDRAIL = "/beta/litellm_basic_guardrail_api"
CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": json.dumps({"who": NAME})}}


class Broken(MemoryReplica):
    """Its model fails for some texts; for others, the call of the replica does."""

    async def extract(self, items, call):
        if any("crashes" in item.text for item in items):
            raise RuntimeError("fault")
        return await super().extract(items, call)


def redactions(mapping):
    """Valid and invalid bodies for /v1/redact, /v1/redact/batch and /v1/restore; some texts make the model fail."""
    for text in (TEXT, f"{OTHER} fails", f"{OTHER} crashes", TEXT * 9):
        yield "/v1/redact", {"text": text, "mapping": mapping}
        yield "/v1/redact", {"text": text, "mapping": text}
        yield "/v1/redact", {"texts": [text, text], "deny_list": {"mail": [MAIL]}, "allow_list": [OTHER] * 1001}
        yield "/v1/redact", {"text": text, "deny_list": {"person": [[NAME]]}}
        yield "/v1/redact", {"text": text, "labels": {"person": 1}, "threshold": CARD}
        yield "/v1/redact", {"text": [text]}
        yield "/v1/redact", {"text": text, "more": CARD}
        yield "/v1/redact", {"text": text, "style": CARD, "conversation": NAME}
        yield "/v1/redact/batch", {"texts": [text, OTHER]}
        yield "/v1/restore", {"text": text, "mapping": mapping}
        yield "/v1/restore", {"text": text, "mapping": MAIL}
        yield "/v1/restore", {"texts": [text], "partial": CARD}
    yield "/v1/restore", {"text": "Dear [PERSON_1]: [CREDIT_CARD_1]", "mapping": mapping}


def calls_of_the_guardrail():
    """The same for LiteLLM's API: requests, responses, parameters."""
    rows = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    for text, params in itertools.product(
        (TEXT, f"{OTHER} fails", f"{OTHER} crashes", TEXT * 9),
        ({}, {"block": ["credit card number"]}, {"deny_list": {"person": [NAME]}}, {"block": ["x"]}, {"more": CARD}),
    ):
        body = {"input_type": "request", "texts": [text], "additional_provider_specific_params": params}
        yield GUARDRAIL, {**body, "structured_messages": rows, "tool_calls": [CALL], "litellm_call_id": MAIL}
        yield GUARDRAIL, {**body, "tool_calls": [CALL]}
        yield GUARDRAIL, {**body, "input_type": NAME, "litellm_trace_id": [CARD]}
    yield GUARDRAIL, {"input_type": "request", "texts": [TEXT], "litellm_call_id": "c1"}
    yield GUARDRAIL, {"input_type": "response", "texts": ["[EMAIL_ADDRESS_1], [CREDIT"], "litellm_call_id": "c1"}


def test_no_original_value_is_shown(caplog, capfd):
    caplog.set_level(logging.DEBUG)
    spans = memory.InMemorySpanExporter()
    broken = Broken(error=lambda item: RuntimeError("fault") if "fails" in item.text else None)
    app = GatewayApp(SMALL)
    app.bind(broken, otel.Tracing(exports.SimpleSpanProcessor(spans)))
    shown, restored, statuses = [], [], set()

    async def scene():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            mapping = (await client.post("/v1/redact", json={"text": TEXT})).json()["mapping"]
            for path, body in (*redactions(mapping), *calls_of_the_guardrail()):
                try:
                    response = await client.post(path, json=body)
                except RuntimeError:  # uvicorn writes this into the log
                    shown.append(traceback.format_exc())
                    continue
                statuses.add(response.status_code)
                is_original = response.status_code == 200 and (path == "/v1/restore" or "response" in body.values())
                (restored if is_original else shown).append(response.text)
            shown.extend([(await client.get(path)).text for path in ("/metrics", "/v1/status", "/v1/model", "/health")])

    asyncio.run(scene())
    traced = [span.to_json() for span in spans.get_finished_spans()]
    assert {200, 413, 422, 500} <= statuses
    assert "[CREDIT_CARD_1]" in "".join(shown)
    assert any(CARD in text for text in restored)
    assert len(traced) > len(shown)
    everything = "\n".join([*shown, *traced, caplog.text, *capfd.readouterr()])
    assert "RuntimeError: fault" in everything
    assert [value for value in VALUES if value in everything] == []
