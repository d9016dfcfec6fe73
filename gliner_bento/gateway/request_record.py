"""What is recorded of a request: its metrics and its line in the access log. Never a text, a label or a raw path."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import quote

from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.disconnect import CLIENT_CLOSED_REQUEST
from gliner_bento.gateway import request_id, tenants
from gliner_bento.gateway.status import RecentErrors

logger = logging.getLogger("gliner_bento.access")

UNKNOWN = "unknown"
"""The route of every path that is none, and the method of every name that is none."""

PROBES = frozenset({"/livez", "/healthz", "/readyz", "/metrics"})
"""Routes that are polled: logged at level debug while they succeed."""

_STATIC_FILES = "/static_content"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_FAULT = 500


@dataclass(slots=True)
class RequestRecord:
    """What its handlers note of a request.

    request_id: the one in the body, if there is one. tokens: of all passes, prompts included. error: its code.
    """

    request_id: str | None = None
    items: int = 0
    tokens: int = 0
    error: str | None = None


_current: ContextVar[RequestRecord] = ContextVar("request_record")


def current() -> RequestRecord:
    """The record of the current request; one that nobody reads outside HTTP."""
    return _current.get(None) or RequestRecord()


class Routes:
    """Finds the template of a path, so that labels are bounded, and the id in it."""

    def __init__(self, paths: Iterable[str]) -> None:
        templates = {path: compile_path(path)[0] for path in paths}
        self._exact = {path for path in templates if "{" not in path}
        self._patterns = {path: pattern for path, pattern in templates.items() if "{" in path}

    def find(self, path: str) -> tuple[str, str | None]:
        """The template of `path`, and the id in it, percent-encoded."""
        path = path.rstrip("/") or "/"
        if path in self._exact:
            return path, None
        for template, pattern in self._patterns.items():
            if match := pattern.match(path):
                return template, quote(match[1], safe="")
        return (_STATIC_FILES if path.startswith(f"{_STATIC_FILES}/") else UNKNOWN), None


class RecordRequests:
    """ASGI middleware, around the one that sets the request's id and tenant."""

    def __init__(self, app: ASGIApp, routes: Routes, errors: RecentErrors) -> None:
        self.app = app
        self._routes = routes
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and record it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from gliner_bento import metrics  # noqa: PLC0415  # binds to its files at import

        started_s = time.perf_counter()
        status = _FAULT

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        record = RequestRecord()
        _current.set(record)
        metrics.HTTP_IN_FLIGHT.inc()
        try:
            await self.app(scope, receive, note)
        except asyncio.CancelledError:
            status = CLIENT_CLOSED_REQUEST
            raise
        finally:
            metrics.HTTP_IN_FLIGHT.dec()
            seconds = time.perf_counter() - started_s
            route, target = self._routes.find(scope["path"].removeprefix(scope.get("root_path", "")))
            method = scope["method"] if scope["method"] in _METHODS else UNKNOWN
            metrics.on_answer(route, method, status, seconds, record.error)
            if status >= _FAULT:
                self._errors.add(status, record.error or "internal", record.request_id or request_id.current())
            _log(method, route, target, status, seconds, record)


def _log(method: str, route: str, target: str | None, status: int, seconds: float, record: RequestRecord) -> None:
    level = logging.DEBUG if route in PROBES and status < _FAULT else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields = {
        "request_id": quote(record.request_id or request_id.current(), safe=":"),
        "tenant": tenants.current().name,
        "method": method,
        "route": route,
        "target": target,
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
        "items": record.items,
        "tokens": record.tokens,
        "error": record.error,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    logger.log(level, "request", extra={"fields": fields})
