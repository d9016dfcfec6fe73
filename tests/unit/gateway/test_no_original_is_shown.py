"""No value that was redacted is in a log, a metric, a trace, an error or a report of a fault. What Redis has is in
`test_redis_mappings`; the playground's page calls these routes."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import logging
import sys
import traceback

import httpx
import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento import cli
from gliner_bento.gateway.app import GatewayApp

otel = pytest.importorskip("gliner_bento.telemetry.otel")
pytest.importorskip("mcp.server.lowlevel", reason="mcp is not installed")
exports = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

NAME, OTHER, CARD, MAIL = "Adalind Ngvik", "Bobrik Eksund", "4111 1111 1111 1111", "ada.ng@example.org"
VALUES = (*NAME.split(), *OTHER.split(), CARD, "4111111111111111", MAIL)
TEXT = f"{NAME} ({MAIL}) pays with {CARD}"
SMALL = dataclasses.replace(
    OPTIONS, enable_mcp=True, max_body_bytes=2**20, max_batch_items=20, max_labels=10, max_text_chars=200
)
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


def streams(mapping):
    """Bodies for /v1/restore/stream: lines."""
    for lines in (
        [{"mapping": mapping, "text": "Dear [PERSON_1], [EMAIL_"}, {"text": "ADDRESS_1]"}],
        [{"mapping": MAIL}, {"text": TEXT}],
        [{"mapping": mapping}, {"text": TEXT}, {"text": TEXT * 9}],
        [{"mapping": mapping}, {"txt": CARD}],
        [NAME],
    ):
        yield "/v1/restore/stream", "\n".join(map(json.dumps, lines))
    yield "/v1/restore/stream", TEXT


def calls_of_tools(mapping):
    """Messages for /mcp."""
    for name, arguments in (
        ("redact", {"text": TEXT}),
        ("redact", {"text": f"{OTHER} fails"}),
        ("redact", {"text": f"{OTHER} crashes"}),
        ("redact", {"text": TEXT, "mapping": MAIL}),
        ("redact", {"text": TEXT, "labels": NAME, "more": CARD}),
        ("redact", {"text": TEXT, "deny_list": [[NAME]]}),
        ("redact", {"text": TEXT * 9}),
        ("extract_entities", {"text": TEXT, "labels": {"person": CARD, "age": {"threshold": CARD}}}),
        ("restore", {"text": TEXT, "mapping": MAIL}),
        ("restore", {"text": TEXT * 9, "mapping": mapping}),
        ("restore", {"text": "Dear [PERSON_1]: [CREDIT_CARD_1]", "mapping": mapping}),
    ):
        yield (
            "/mcp",
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
        )


def calls_of_others():
    """What NeMo Anonymizer and Presidio's clients send."""
    for text in (TEXT, f"{OTHER} fails", f"{OTHER} crashes", TEXT * 9):
        message = {"role": "user", "content": text}
        yield "/v1/chat/completions", {"messages": [message], "labels": ["person"]}
        yield "/v1/chat/completions", {"messages": [{**message, "role": CARD}], "labels": [[NAME]]}
        yield "/analyze", {"text": text, "language": "en", "allow_list": [OTHER]}
        yield "/analyze", {"text": text, "language": NAME, "entities": [[CARD]]}
        yield "/anonymize", {"text": text, "analyzer_results": [{"entity_type": CARD, "start": 0, "end": 900}]}
        place = {"entity_type": "PERSON", "start": 0, "end": len(text), "score": 1}
        yield "/anonymize", {"text": text, "analyzer_results": [place]}


def has_originals(path, body):
    """Whether a good answer to a request is to have originals."""
    if path == "/mcp":
        return body["params"]["name"] != "redact"
    return path.startswith("/v1/restore") or path == "/v1/chat/completions" or "response" in body.values()


@dataclasses.dataclass
class Shown:
    """What a run has shown. answers: those that may have originals are `restored`. everything: all that must not."""

    answers: list[str] = dataclasses.field(default_factory=list)
    restored: list[str] = dataclasses.field(default_factory=list)
    statuses: set[int] = dataclasses.field(default_factory=set)
    traced: list[str] = dataclasses.field(default_factory=list)
    everything: str = ""

    @property
    def values(self):
        return [value for value in VALUES if value in self.everything]


@pytest.fixture
def shown_by(caplog, capfd):
    """Sends requests to a server with a replica: a function of the sealed mapping of TEXT makes them."""
    caplog.set_level(logging.DEBUG)

    def run(replica, requests):
        spans, shown = memory.InMemorySpanExporter(), Shown()
        app = GatewayApp(SMALL)
        app.bind(replica, otel.Tracing(exports.SimpleSpanProcessor(spans)))

        async def scene():
            headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
                mapping = (await client.post("/v1/redact", json={"text": TEXT})).json()["mapping"]
                for path, body in requests(mapping):
                    content = body if isinstance(body, str) else json.dumps(body)
                    try:
                        response = await client.post(path, content=content)
                    except RuntimeError:  # uvicorn writes this into the log
                        shown.answers.append(traceback.format_exc())
                        continue
                    shown.statuses.add(response.status_code)
                    is_good = response.status_code == 200 and '"isError":true' not in response.text
                    (shown.restored if is_good and has_originals(path, body) else shown.answers).append(response.text)
                pages = ("/metrics", "/v1/status", "/v1/model", "/health")
                shown.answers.extend([(await client.get(path)).text for path in pages])

        asyncio.run(scene())
        shown.traced = [span.to_json() for span in spans.get_finished_spans()]
        fields = [repr(vars(record)) for record in caplog.records]
        shown.everything = "\n".join([*shown.answers, *shown.traced, caplog.text, *fields, *capfd.readouterr()])
        return shown

    return run


def test_no_original_value_is_shown(shown_by):
    broken = Broken(error=lambda item: RuntimeError("fault") if "fails" in item.text else None)

    def requests(mapping):
        yield from redactions(mapping)
        yield from calls_of_the_guardrail()
        yield from streams(mapping)
        yield from calls_of_tools(mapping)
        yield from calls_of_others()

    shown = shown_by(broken, requests)
    assert {200, 413, 422, 500} <= shown.statuses
    assert "[CREDIT_CARD_1]" in "".join(shown.answers)
    assert sum(CARD in text for text in shown.restored) >= 2
    assert any('{"text":"Dear Adalind, "}' in text for text in shown.restored), "a stream"
    assert len(shown.traced) > len(shown.answers)
    assert "RuntimeError: fault" in shown.everything
    assert shown.values == []


def leak(item):
    """A fault that shows a text: in an error, on the standard error, or in the log."""
    if "crashes" in item.text:
        raise RuntimeError(item.text)
    if "prints" in item.text:
        sys.stderr.write(item.text)
    elif "fields" in item.text:
        logging.getLogger("gliner_bento.x").info("request", extra={"of_request": item.text})
    else:
        logging.getLogger("gliner_bento.x").debug(item.text)


@pytest.mark.parametrize("text", [f"{OTHER} crashes", f"{OTHER} prints", f"{OTHER} fields", OTHER])
def test_a_value_that_is_shown_is_seen(shown_by, text):
    shown = shown_by(MemoryReplica(error=leak), lambda _: [("/v1/redact", {"text": text})])
    assert {*OTHER.split()} <= {*shown.values}


def test_the_command_line_shows_no_original(tmp_path, capfd):
    """`--check`, which prints matches, aside."""
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "list.json").write_text(json.dumps([{"pattern": f"({NAME}"}]))
    copy, mapping = str(tmp_path / "b.txt"), str(tmp_path / "mapping.jsonl")
    one = ["redact", str(tmp_path / "a.txt"), "-o", copy]
    codes = [
        cli.main([*one, "--patterns-only", "--mapping", mapping]),
        cli.main([*one, "--patterns-only", "--mapping", mapping]),
        cli.main([*one, "--patterns-only", "--deny-list", f"@{tmp_path}/list.json"]),
        cli.main([*one, "--sealed", str(tmp_path / "sealed"), "--url", "http://127.0.0.1:9"]),
        cli.main(["redact", "--restore", mapping, copy, "-o", str(tmp_path / "c.txt")]),
        cli.main(["restore", copy, "--sealed", copy, "--url", "http://127.0.0.1:9"]),
    ]
    assert codes[0] == 0
    assert codes.count(0) < len(codes)
    assert (tmp_path / "c.txt").read_text() == TEXT
    printed = "".join(capfd.readouterr())
    assert "email address" in printed
    assert [value for value in VALUES if value in printed] == []
