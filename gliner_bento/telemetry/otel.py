"""OpenTelemetry spans: of requests in the gateway, and of items in the replica. Needs the extra `otel`.

POST /v1/extract ─┬─ queue              until the item's batch starts
                  └─ batch ─┬─ collate
                            ├─ forward
                            └─ decode
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gliner_bento import __version__
from gliner_bento.scheduler.observer import ItemTiming, Observer

_TRACEPARENT = "traceparent"
_SERVER_FAULT = 500
_ATTRIBUTES = {
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
    "request_id": "gliner.request_id",
    "tenant": "gliner.tenant",
    "items": "gliner.items",
    "tokens": "gliner.tokens",
}
"""Attribute of a request's span for each field of the access log."""
_w3c = TraceContextTextMapPropagator()


def otlp_processor() -> SpanProcessor:
    """Exports spans in batches over OTLP, to where the `OTEL_EXPORTER_OTLP_` variables say."""
    return BatchSpanProcessor(OTLPSpanExporter())


class OtelRequestSpan:
    """The span of a request that is being served.

    traceparent: the context for calls to the replica; None if the request is not sampled.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        if span.is_recording():
            _w3c.inject(carrier, set_span_in_context(span))
        self.traceparent = carrier.get(_TRACEPARENT)

    def end(self, name: str, fields: Mapping[str, Any]) -> None:
        """The request was answered. fields: those of its line in the access log."""
        self._span.update_name(name)
        self._span.set_attributes({attribute: fields[field] for field, attribute in _ATTRIBUTES.items()})
        if fields["status"] >= _SERVER_FAULT:
            self._span.set_status(Status(StatusCode.ERROR, fields.get("error")))
        self._span.end()


class Tracing(Observer):
    """The spans of this process. Implements the gateway's `RequestTracer`, and the scheduler's observer."""

    def __init__(self, processor: SpanProcessor) -> None:
        resource = Resource.create({"service.name": "gliner-bento"}).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(processor)
        self._tracer = provider.get_tracer("gliner_bento", __version__)

    def begin(self, headers: Mapping[str, str]) -> OtelRequestSpan:
        """Start the span of a request, as a child of the caller's if it sent a `traceparent`."""
        return OtelRequestSpan(self._tracer.start_span("request", _w3c.extract(headers), SpanKind.SERVER))

    def on_traced(self, timing: ItemTiming) -> None:
        """An item has been decoded. Record its spans, all of which have ended."""
        context = _w3c.extract({_TRACEPARENT: timing.trace})
        unix_offset_s = time.time() - time.monotonic()

        def unix_ns(monotonic_s: float) -> int:
            return int((unix_offset_s + monotonic_s) * 1e9)

        _, started_s, _ = timing.stages[0]
        _, _, ended_s = timing.stages[-1]
        request = {"gliner.request_id": timing.request_id}
        queue = self._tracer.start_span("queue", context, attributes=request, start_time=unix_ns(timing.admitted_s))
        queue.end(unix_ns(started_s))
        size = {"gliner.batch.items": timing.batch_items, "gliner.batch.tokens": timing.batch_tokens}
        batch = self._tracer.start_span("batch", context, attributes={**request, **size}, start_time=unix_ns(started_s))
        in_batch = set_span_in_context(batch, context)
        for stage, stage_started_s, stage_ended_s in timing.stages:
            self._tracer.start_span(stage, in_batch, start_time=unix_ns(stage_started_s)).end(unix_ns(stage_ended_s))
        batch.end(unix_ns(ended_s))
