"""The spans of a request, from the gateway through the transport to the scheduler's threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from replica_calls import run
from serving import FREE, HttpServing
from views import view

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions

otel = pytest.importorskip("gliner_bento.telemetry.otel")
exports = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"}
IN_A_BATCH = ["collate", "forward", "decode"]
BODY = {"text": "Ada met Charles", "labels": ["name"], "request_id": "mine"}


class Traced:
    """A gateway before a replica, in another process as far as they know."""

    def __init__(self, folder: Path) -> None:
        self._exporter = memory.InMemorySpanExporter()
        tracing = otel.Tracing(exports.SimpleSpanProcessor(self._exporter))
        self.serving = HttpServing(folder, tracer=tracing)
        self.serving.release(FREE)
        app = GatewayApp(view(GatewayOptions))
        app.bind(self.serving.replica, tracing)
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")

    def post(self, headers: dict[str, str], path: str = "/v1/extract", **body: Any) -> list[Any]:
        """The spans of a request, and none of one before."""
        self._exporter.clear()
        run(lambda: self._client.post(path, json=BODY | body, headers=headers))
        spans: list[Any] = list(self._exporter.get_finished_spans())
        return spans


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    folder = tmp_path / "f"
    folder.mkdir()
    traced = Traced(folder)
    yield traced
    traced.serving.end()


def test_a_request_is_one_trace_from_the_gateway_to_the_stages_of_its_batch(traced):
    spans = {span.name: span for span in traced.post(SAMPLED)}
    assert set(spans) == {"POST /v1/extract", "queue", "batch", *IN_A_BATCH}
    request, batch = spans["POST /v1/extract"], spans["batch"]
    assert {format(span.context.trace_id, "032x") for span in spans.values()} == {TRACE}
    assert format(request.parent.span_id, "016x") == "00f067aa0ba902b7"
    assert {spans[name].parent.span_id for name in ("queue", "batch")} == {request.context.span_id}
    assert {spans[name].parent.span_id for name in IN_A_BATCH} == {batch.context.span_id}
    assert request.resource.attributes["service.name"] == "gliner-bento"


def test_the_spans_have_the_requests_id_and_size_and_none_of_its_text(traced):
    spans = {span.name: span for span in traced.post(SAMPLED)}
    attributes = spans["POST /v1/extract"].attributes
    assert attributes["gliner.request_id"] == "mine"
    assert attributes["http.response.status_code"] == 200
    assert (attributes["http.route"], attributes["gliner.items"]) == ("/v1/extract", 1)
    assert spans["queue"].attributes["gliner.request_id"].endswith("mine")
    assert spans["batch"].attributes["gliner.batch.items"] == 1
    assert "Charles" not in str([dict(span.attributes) for span in spans.values()])


def test_the_spans_follow_each_other(traced):
    spans = {span.name: span for span in traced.post(SAMPLED)}
    order = [spans[name] for name in ("queue", *IN_A_BATCH)]
    assert all(before.end_time <= after.start_time for before, after in pairwise(order))
    assert all(span.start_time <= span.end_time for span in spans.values())


def test_each_pass_of_a_long_text_has_a_batch(traced):
    spans = traced.post(SAMPLED, text="Ada met Charles Babbage and Mary Shelley there")
    names = [span.name for span in spans]
    assert names.count("batch") == names.count("queue") == names.count("forward") == 4


def test_a_request_that_is_not_sampled_has_no_spans(traced):
    assert traced.post(NOT_SAMPLED) == []


def test_an_error_is_the_spans_status(traced):
    (span,) = traced.post(SAMPLED, timeout_ms=0.001)
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "deadline_exceeded")
