"""Refusals that cost little: decided from a request's headers, or a small body, before BentoML's app gets the request.

A server at many times its capacity refuses most of its requests. Through BentoML and the middleware, a few hundred
refusals per second took a core. Under another HTTP server, which does not call this module, `GatewayMiddleware` refuses
the same requests with the same responses.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.errors import GLiNERBentoError, QueueFull, RateLimited
from gliner_bento.fairness.constants import BYTES_PER_TOKEN, MAX_READ_BYTES, PASS_TOKENS, SHORT_TOKENS
from gliner_bento.gateway import request_id
from gliner_bento.gateway.access import Access
from gliner_bento.gateway.endpoint import Endpoint, EndpointTable
from gliner_bento.gateway.loop_pacer import LoopPacer
from gliner_bento.gateway.media import JSON
from gliner_bento.gateway.policy.admission import Admission
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.gateway.request_record import Recorder, RequestRecord
from gliner_bento.gateway.security_headers import SECURITY_HEADERS

logger = logging.getLogger("gliner_bento.gateway")

_ALWAYS = [(b"content-type", JSON.encode()), *SECURITY_HEADERS]


class EarlyRefusal:
    """Refuses extractions once their headers, or their small bodies, have been read, and records the refusals. All
    other requests are passed to the app, at most one extraction per iteration of the event loop.

    cors: whether responses to pages of other origins need CORS headers; their requests are not refused here.
    """

    def __init__(
        self, table: EndpointTable, access: Access, admission: Admission, recorder: Recorder, *, cors: bool
    ) -> None:
        self._table = table
        self._access = access
        self._admission = admission
        self._recorder = recorder
        self._cors = cors
        self._pacer = LoopPacer()

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request: ASGI middleware around everything, BentoML included."""
        endpoint = self._endpoint(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await app(scope, receive, send)
            return
        body: bytes | None = None
        refusal = self._refusal(scope, body)
        if not refusal and _reads_body(endpoint, scope):
            body = await _read(receive)
            if body is None:
                return
            receive = _replay(body, receive)
            refusal = self._refusal(scope, body)
        if not refusal and self._pacer.free:
            await self._pacer.wait()
        elif not refusal:
            expected = self.count_unread(scope, body)
            try:
                await self._pacer.wait()
            finally:
                expected()
            refusal = self._refusal(scope, body)  # requests admitted meanwhile may cost more than the average
        if refusal:
            await _send(refusal, scope, receive, send)
        else:
            await app(scope, receive, send)

    def refuse(self, scope: Scope, body: bytes | None = None) -> tuple[Message, Message] | None:
        """The response to a refused extraction; None: the app should answer. body: None if it has not been read."""
        started_s = time.perf_counter()
        headers = Headers(scope=scope)
        if self._cors and "origin" in headers:
            return None
        endpoint, tenant = self._endpoint(scope), self._tenant_of(scope, headers)
        if endpoint is None or tenant is None:
            return None  # 401 comes before 429
        try:
            asked = _parsed(body)
            self._admission.refuse(tenant, asked.timeout_s, _cost(headers), asked.model)
        except (QueueFull, RateLimited) as error:
            record = RequestRecord(request_id.choose(headers.get(request_id.HEADER)), error=error.code)
            refusal = self._response(endpoint, error, record, tenant)
            self._recorder.refused(scope, record, tenant, refusal[0]["status"], time.perf_counter() - started_s)
            return refusal
        return None

    def _refusal(self, scope: Scope, body: bytes | None) -> tuple[Message, Message] | None:
        """`refuse`; None, so that the app answers, if the check itself fails."""
        try:
            return self.refuse(scope, body)
        except Exception:
            logger.exception("%s %s could not be refused early", scope["method"], scope["path"])
            return None

    def count_unread(self, scope: Scope, body: bytes | None = None) -> Callable[[], None]:
        """Count a request that waits to be read as load. Returns a function that ends this."""
        tenant = self._tenant_of(scope, Headers(scope=scope))
        return self._admission.count_unread(tenant, _parsed(body).model) if tenant else lambda: None

    def _endpoint(self, scope: Scope) -> Endpoint | None:
        """The endpoint of an extraction; None for all other requests, which are never refused."""
        endpoint = self._table.find(scope["method"], _path(scope))
        return endpoint if endpoint and endpoint.is_refusable else None

    def _tenant_of(self, scope: Scope, headers: Headers) -> Tenant | None:
        try:
            return self._access.tenant_of(scope, headers, _path(scope))
        except GLiNERBentoError:
            return None

    def _response(
        self, endpoint: Endpoint, error: QueueFull | RateLimited, record: RequestRecord, tenant: Tenant
    ) -> tuple[Message, Message]:
        status = endpoint.statuses[error.code]
        body = msgspec.json.encode(endpoint.error.of(error.detail(record.request_id), status))
        own = {
            "content-length": len(body),
            "retry-after": error.retry_after_s,
            "x-request-id": record.request_id,
            **self._admission.quota(tenant),
        }
        headers = [*_ALWAYS, *((name.lower().encode(), str(value).encode()) for name, value in own.items())]
        return (
            {"type": "http.response.start", "status": status, "headers": headers},
            {"type": "http.response.body", "body": body},
        )


class _Body(msgspec.Struct):
    """What decides about a refusal, where its values are valid."""

    timeout_ms: float | None = None
    model: str | None = None

    @property
    def timeout_s(self) -> float:
        """Infinite without a valid one."""
        return self.timeout_ms / 1000 if self.timeout_ms and self.timeout_ms > 0 else math.inf


_bodies = msgspec.json.Decoder(_Body)


def _parsed(body: bytes | None) -> _Body:
    try:
        return _Body() if body is None else _bodies.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Body()


def _reads_body(endpoint: Endpoint, scope: Scope) -> bool:
    """Whether the body may contain a deadline, or a model, and is small enough to be read here."""
    length = Headers(scope=scope).get("content-length", "")
    return endpoint.has_deadline and length.isdecimal() and int(length) <= MAX_READ_BYTES


def _cost(headers: Headers) -> float:
    """The tokens of a request, estimated from the length of its body."""
    length = headers.get("content-length", "")
    return min(max(SHORT_TOKENS, int(length) / BYTES_PER_TOKEN), PASS_TOKENS) if length.isdecimal() else PASS_TOKENS


def _path(scope: Scope) -> str:
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


async def _send(refusal: tuple[Message, Message], scope: Scope, receive: Receive, send: Send) -> None:
    """Send the response. A connection that is not kept alive is closed only after the request's body has arrived: a
    body on a closed connection would reset it, and the client would lose the response. A client that waits for `100
    Continue` may or may not send its body, so its connection is closed."""
    given = Headers(scope=scope)
    if "expect" in given:
        refusal[0]["headers"].append((b"connection", b"close"))
    elif scope["http_version"] == "1.0" or "close" in given.get("connection", "").lower():
        while (await receive()).get("more_body"):
            pass
    for message in refusal:
        await send(message)


async def _read(receive: Receive) -> bytes | None:
    """The body; None if the client disconnects before it is complete."""
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """`receive` after a first message with the whole body."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
