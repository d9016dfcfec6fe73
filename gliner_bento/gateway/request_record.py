"""What is recorded of a request: metrics, a line in the access log, a span. Never a text, a label or a raw path."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.gateway import request_id
from gliner_bento.gateway.policy import tenants
from gliner_bento.gateway.policy.tenants import Tenant
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


@dataclass(slots=True)
class RequestRecord:
    """What the handlers of a request record for its log line, metrics and span.

    request_id: the id in the body, if any. model: the configured name of its model, if the model has one.
    admitted: whether its items were sent to the replica. items: number of items with a result. tokens: of all passes,
    prompts included. error: code of its error. trace: the `traceparent` of its span, if it is traced.
    """

    request_id: str | None = None
    trace: str | None = None
    model: str | None = None
    admitted: bool = False
    items: int = 0
    tokens: int = 0
    error: str | None = None


_current: ContextVar[RequestRecord] = ContextVar("request_record")


def current() -> RequestRecord:
    """The record of the current request; outside HTTP, a new record that is discarded."""
    return _current.get(None) or RequestRecord()


class Routes:
    """Finds the route template of a path, which bounds the number of metric labels, and the id in the path."""

    def __init__(self, paths: Iterable[str]) -> None:
        templates = {path: compile_path(path)[0] for path in paths}
        self._exact = {path for path in templates if "{" not in path}
        self._patterns = {path: pattern for path, pattern in templates.items() if "{" in path}

    def find(self, path: str) -> tuple[str, str | None]:
        """The template of `path`, and the percent-encoded id in it; if there are several ids, the request's."""
        path = path.rstrip("/") or "/"
        if path in self._exact:
            return path, None
        for template, pattern in self._patterns.items():
            if match := pattern.match(path):
                id_in_path = match.groupdict().get("request_id", match[1])
                return template, quote(id_in_path[:_MAX_ID_CHARS], safe="")
        return (_STATIC_FILES if path.startswith(f"{_STATIC_FILES}/") else UNKNOWN), None


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
    """Records requests in metrics, log, spans, `errors`. tracer: set when the server starts, if requests are traced."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.errors = RecentErrors()
        self.tracer: RequestTracer | None = None
        self._routes = Routes(paths)

    def begin(self, scope: Scope) -> tuple[RequestRecord, RequestSpan | None]:
        """A request has arrived. Makes its record the current one."""
        span = self.tracer.begin(Headers(scope=scope)) if self.tracer else None
        record = RequestRecord(trace=span.traceparent if span else None)
        _current.set(record)
        return record, span

    def refused(self, scope: Scope, record: RequestRecord, tenant: Tenant, status: int, seconds: float) -> None:
        """A request was refused before `begin`."""
        span = self.tracer.begin(Headers(scope=scope)) if self.tracer else None
        self._end(scope, record, span, tenant, status, seconds)

    def end(self, scope: Scope, record: RequestRecord, span: RequestSpan | None, status: int, seconds: float) -> None:
        """The current request was answered."""
        record.request_id = record.request_id or request_id.current()
        self._end(scope, record, span, tenants.current(), status, seconds)

    def _end(
        self,
        scope: Scope,
        record: RequestRecord,
        span: RequestSpan | None,
        tenant: Tenant,
        status: int,
        seconds: float,
    ) -> None:
        route, target = self._routes.find(scope["path"].removeprefix(scope.get("root_path", "")))
        method = scope["method"] if scope["method"] in _METHODS else UNKNOWN
        answered_id = quote(record.request_id or "", safe=":")
        fields = {
            "request_id": answered_id,
            "tenant": tenant.name,
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
        quiet = route in PROBES | FILES and (status < _SERVER_ERROR or status == _NOT_READY)
        level = logging.DEBUG if quiet else logging.INFO
        logger.log(level, "request", extra={"fields": fields})


class RecordRequests:
    """ASGI middleware. Must be outside `GatewayMiddleware`, which sets the request's id and tenant."""

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

        record, span = self._recorder.begin(scope)
        metrics.http_in_flight.inc()
        try:
            await self.app(scope, receive, send_and_note_status)
        except asyncio.CancelledError:
            status = CLIENT_CLOSED_REQUEST
            raise
        finally:
            metrics.http_in_flight.dec()
            self._recorder.end(scope, record, span, status, time.perf_counter() - started_s)
