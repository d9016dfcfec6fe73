"""What is recorded of a request: metrics, a line in the access log, a span. Never a text, a label or a raw path."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.gateway.edge import Arrival, arrival_in
from gliner_bento.gateway.endpoint import EndpointTable
from gliner_bento.gateway.status import RecentErrors
from gliner_bento.http.disconnect import CLIENT_CLOSED_REQUEST
from gliner_bento.telemetry.metrics import process_metrics

logger = logging.getLogger("gliner_bento.access")

UNKNOWN = "unknown"
"""Recorded in place of a path that is no route, and of a method that HTTP does not have."""

PROBES = frozenset({"/health", "/ping", "/livez", "/healthz", "/readyz", "/metrics"})
"""Routes that are polled. They are logged at level debug unless they fail. A 503, because the server is not ready, does
not count as a failure: the fleet logs changes of readiness."""

_STATIC_FILES = "/static_content"
FILES = frozenset({_STATIC_FILES, "/playground/{file:path}", "/docs/{file:path}"})
"""Routes of the pages' files, of which a browser requests many. They are logged like probes."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_SERVER_ERROR = 500
_NOT_READY = 503
_MAX_ID_CHARS = 128


def route_of(table: EndpointTable, path: str) -> tuple[str, str | None]:
    """The path of the endpoint at `path`, so that the number of metric labels is bounded, and the percent-encoded id in
    `path`; if there are several ids, the request's."""
    path = path.rstrip("/") or "/"
    methods, match = table.find(path)
    if not methods:
        return (_STATIC_FILES if path.startswith(f"{_STATIC_FILES}/") else UNKNOWN), None
    (endpoint, *_) = methods.values()
    if match is None:
        return endpoint.path, None
    id_in_path = match.groupdict().get("request_id", match[1])
    return endpoint.path, quote(id_in_path[:_MAX_ID_CHARS], safe="")


class RequestSpan(Protocol):
    """The span of a request. traceparent: the context for calls to the replica; None if it is not sampled."""

    traceparent: str | None

    def end(self, name: str, fields: Mapping[str, Any]) -> None:
        """The request was answered. fields: those of its line in the access log."""


class RequestTracer(Protocol):
    """Makes spans of requests."""

    def begin(self, headers: Mapping[str, str]) -> RequestSpan:
        """A request has arrived."""


class Recorder:
    """Records requests in metrics, log, spans, `errors`. table: of all endpoints. tracer: set when the server starts,
    if requests are traced."""

    def __init__(self, table: EndpointTable) -> None:
        self.errors = RecentErrors()
        self.tracer: RequestTracer | None = None
        self._table = table

    def begin(self, arrival: Arrival) -> RequestSpan | None:
        """A request has arrived. Returns its span, if it is traced."""
        span = self.tracer.begin(arrival.headers) if self.tracer else None
        arrival.context.record.trace = span.traceparent if span else None
        return span

    def end(self, arrival: Arrival, span: RequestSpan | None, status: int, seconds: float) -> None:
        """The request was answered."""
        record = arrival.context.record
        route, target = route_of(self._table, arrival.path)
        method = arrival.method if arrival.method in _METHODS else UNKNOWN
        answered_id = quote(arrival.context.id, safe=":")
        fields = {
            "request_id": answered_id,
            "tenant": arrival.context.tenant.name,
            "method": method,
            "route": route,
            "target": target,
            "status": status,
            "duration_ms": round(seconds * 1000, 1),
            "model": record.model,
            "items": record.items,
            "tokens": record.tokens,
            "error": record.error,
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        process_metrics().on_answer(route, method, status, seconds, record.admitted, record.error)
        if status >= _SERVER_ERROR:
            self.errors.add(status, record.error or "internal", answered_id)
        if span:
            span.end(f"{method} {route}", fields)
        quiet = (route in PROBES or route in FILES) and (status < _SERVER_ERROR or status == _NOT_READY)
        level = logging.DEBUG if quiet else logging.INFO
        if logger.isEnabledFor(level):  # not `logger.log`, which looks for its caller
            line = logger.makeRecord(logger.name, level, __file__, 0, "request", (), None, extra={"fields": fields})
            logger.handle(line)


class RecordRequests:
    """ASGI middleware. Must be inside `Entrance`."""

    def __init__(self, app: ASGIApp, recorder: Recorder) -> None:
        self.app = app
        self._recorder = recorder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and record it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        metrics = process_metrics()
        started_s = time.perf_counter()
        status = _SERVER_ERROR

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        arrival = arrival_in(scope)
        span = self._recorder.begin(arrival)
        metrics.http_in_flight.inc()
        try:
            await self.app(scope, receive, send_and_note_status)
        except asyncio.CancelledError:
            status = CLIENT_CLOSED_REQUEST
            raise
        finally:
            metrics.http_in_flight.dec()
            self._recorder.end(arrival, span, status, time.perf_counter() - started_s)
