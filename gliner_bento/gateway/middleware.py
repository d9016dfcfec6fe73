"""Rules for every route, BentoML's own included: request ids, access, limits on bodies, JSON, the error body."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.errors import GLiNERBentoError, InternalError, TooLarge, UnsupportedMediaType
from gliner_bento.gateway.edge import Arrival, arrival_in
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.error_body import error_response, from_framework
from gliner_bento.gateway.json_values import MAX_VALUES, JsonValues
from gliner_bento.gateway.media import JSON, NDJSON, is_json, media_type
from gliner_bento.gateway.policy.admission import Admission
from gliner_bento.gateway.security_headers import secure

logger = logging.getLogger("gliner_bento.gateway")

_BODY_METHODS = {"POST", "PUT", "PATCH"}
_OWN_HEADERS = {"content-length", "content-type"}  # not copied from an error response to the one that replaces it
_BENTOML_TYPES = "application/vnd.bentoml"
"""Prefix of the media types that BentoML's services send each other. If a client sends one, BentoML would answer with a
traceback."""


class GatewayMiddleware:
    """Applies the rules of this module. Pure ASGI, which is cheaper per request than Starlette's `BaseHTTPMiddleware`.

    limits: maximum sizes of bodies in bytes, by setting. admission: refuses requests under load.
    """

    def __init__(self, app: ASGIApp, limits: Mapping[str, int], admission: Admission) -> None:
        self.app = app
        self._admission = admission
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        arrival = arrival_in(scope)
        headers, context, endpoint = arrival.headers, arrival.context, arrival.endpoint
        uploads = endpoint.uploads if endpoint else ""
        is_upload = bool(self._limits.get(uploads)) and not is_json(media_type(headers))
        setting = uploads if is_upload else "max_body_bytes"
        reads_lines = bool(endpoint and endpoint.reads_lines)
        body = _LimitedBody(receive, self._limits[setting], setting, raises=bool(uploads) or reads_lines)
        sender = _ResponseSender(scope, send, body, arrival)
        if arrival.refused:
            await _error_response(arrival, arrival.refused)(scope, receive, sender.send_with_headers)
            return
        try:
            limited = endpoint if endpoint and endpoint.is_limited else None
            if limited:
                sender.quota = partial(self._admission.quota, context.tenant)
            with self._admitted(arrival, limited) if limited else nullcontext():
                if scope["method"] in _BODY_METHODS:
                    body.check_headers(headers, is_upload=is_upload, may_be_lines=reads_lines)
                await self.app(scope, body.receive, sender.send)
        except GLiNERBentoError as error:
            await _error_response(arrival, error)(scope, receive, sender.send_with_headers)
        except Exception:
            if sender.started:
                raise
            logger.exception("%s %s failed", scope["method"], scope["path"])
            await _error_response(arrival, InternalError())(scope, receive, sender.send_with_headers)

    def _admitted(self, arrival: Arrival, endpoint: Endpoint) -> AbstractContextManager[None]:
        extracts = endpoint.needs_model and not arrival.has_room
        return self._admission.request(arrival.context.tenant, extracts=extracts)


class _LimitedBody:
    """The request's body, limited in bytes (even without a Content-Length) and in JSON values.

    raises: whether reading beyond a limit raises `TooLarge`. Otherwise the body ends at the limit, and `error` is set,
    because BentoML's parser would log an exception as a fault of the server."""

    def __init__(self, receive: Receive, limit_bytes: int, setting: str, *, raises: bool) -> None:
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._seen_bytes = 0
        self._setting = setting
        self._raises = raises
        self._values: JsonValues | None = JsonValues()
        self.error: TooLarge | None = None

    def check_headers(self, headers: Mapping[str, str], *, is_upload: bool, may_be_lines: bool) -> None:
        """Raise `TooLarge` or `UnsupportedMediaType` if the headers announce a body that is not accepted."""
        if is_upload:
            self._values = None
        with contextlib.suppress(ValueError):
            if int(headers.get("content-length", "0")) > self._limit_bytes:
                raise self._too_large()
        kind = media_type(headers)
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        is_other_type = bool(kind) and not (is_json(kind) or is_upload or (may_be_lines and kind == NDJSON))
        if is_other_type and (has_body or kind.startswith(_BENTOML_TYPES)):
            raise UnsupportedMediaType(f"send the body as {JSON}, not {kind}")
        coding = headers.get("content-encoding", "").strip().lower()
        if has_body and coding not in ("", "identity"):
            raise UnsupportedMediaType(f"send the body without a Content-Encoding ({coding[:20]})")

    async def receive(self) -> Message:
        """The next message. Beyond a limit, raises `TooLarge` if `raises`, else returns the end of the body."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._check(message.get("body", b""))
            if self.error and self._raises:
                raise self.error
            if self.error:
                return {"type": "http.request", "body": b"", "more_body": False}
        return message

    def _check(self, chunk: bytes) -> None:
        self._seen_bytes += len(chunk)
        if self._seen_bytes > self._limit_bytes:
            self.error = self._too_large()
        elif self._values and self._values.add(chunk) > MAX_VALUES:
            self.error = TooLarge(f"the body has more than {MAX_VALUES} values (JSON lists, objects and their items)")

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body has more than {self._limit_bytes} bytes ({self._setting})")


class _ResponseSender:
    """Sends one response: adds headers, and replaces error bodies of Starlette and BentoML by ours.

    quota: returns the headers X-RateLimit-*; none until the tenant is known.
    """

    def __init__(self, scope: Scope, send: Send, body: _LimitedBody, arrival: Arrival) -> None:
        self._scope = scope
        self._send = send
        self._body = body
        self._arrival = arrival
        self._held: Message | None = None
        self._content = b""
        self.started = False
        self.quota: Callable[[], Mapping[str, str]] = dict

    async def send_with_headers(self, message: Message) -> None:
        """Send `message`, with the request's id, the tenant's quota and the security headers in the headers."""
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self._arrival.context.id
            secure(headers)
            headers.update(self.quota())
        await self._send(message)

    async def send(self, message: Message) -> None:
        """Send a message of a successful response; collect an error response until it is complete, then rewrite it."""
        if message["type"] == "http.response.start" and (message["status"] >= 400 or self._body.error):
            self._held = message
        elif self._held is None:
            await self.send_with_headers(message)
        else:
            self._content += message.get("body", b"")
            if not message.get("more_body", False):
                await self._rewrite(self._held)

    async def _rewrite(self, start: Message) -> None:
        error = self._body.error
        if error:
            response: Response | None = _error_response(self._arrival, error)
        else:
            response = _from_framework(self._arrival, start["status"], self._content)
        if response is None:
            await self.send_with_headers(start)
            await self.send_with_headers({"type": "http.response.body", "body": self._content})
            return
        for name, value in Headers(raw=start["headers"]).items():
            if name not in _OWN_HEADERS:
                response.headers[name] = value
        await response(self._scope, _receive_nothing, self.send_with_headers)


def _error_response(arrival: Arrival, error: GLiNERBentoError) -> Response:
    context, endpoint = arrival.context, arrival.nearest
    more = (endpoint.statuses, endpoint.error) if endpoint else ()
    return error_response(context, error, *more)


def _from_framework(arrival: Arrival, status: int, sent: bytes) -> Response | None:
    context, endpoint = arrival.context, arrival.nearest
    more = (endpoint.request, endpoint.error) if endpoint else ()
    return from_framework(context, status, sent, *more)


async def _receive_nothing() -> Message:
    return {"type": "http.disconnect"}
