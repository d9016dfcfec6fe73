"""Refusals that cost little: decided from a request's headers, or a small body, before BentoML's app sees it.

A server at many times its capacity refuses most of its requests. Through BentoML and the middleware, that took a core
at a few hundred per second. `GatewayMiddleware` refuses the same requests with the same responses,
where the HTTP server is another one. Knows nothing of sockets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.datastructures import Headers
from starlette.types import Scope

from gliner_bento.errors import GLiNERBentoError, QueueFull, RateLimited
from gliner_bento.gateway import request_id
from gliner_bento.gateway.access import Access
from gliner_bento.gateway.admission import PASS_TOKENS, SHORT_TOKENS
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.media import JSON
from gliner_bento.gateway.request_record import Recorder, RequestRecord
from gliner_bento.gateway.security_headers import SECURITY_HEADERS
from gliner_bento.gateway.tenant_limits import TenantLimits
from gliner_bento.gateway.tenants import Tenant

_BYTES_PER_TOKEN = 5

MAX_READ_BYTES = 2**16
"""A larger body is not read for its deadline before the app answers."""

_ALWAYS = [(b"content-type", JSON.encode()), *SECURITY_HEADERS]
_HEADERS = b"".join(b"%s: %s\r\n" % header for header in _ALWAYS) + (
    b"content-length: %d\r\nretry-after: %d\r\nx-request-id: %s\r\n"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response as bytes. headers: a line each, without those of the connection."""

    status: int
    headers: bytes
    body: bytes


class EarlyRefusal:
    """Decides which requests are refused, and records those that are.

    refusable: finds the endpoint of an extraction by method and path; all others are never refused.
    check_load, expect: see `Gateway`.
    cors: whether responses to pages of other origins have headers of their own.
    """

    def __init__(
        self,
        refusable: Callable[[str, str], Endpoint | None],
        access: Access,
        limits: TenantLimits,
        check_load: Callable[[Tenant, float, float], None],
        expect: Callable[[Tenant], Callable[[], None]],
        recorder: Recorder,
        *,
        cors: bool,
    ) -> None:
        self._refusable = refusable
        self._access = access
        self._limits = limits
        self._check_load = check_load
        self._expect = expect
        self._recorder = recorder
        self._cors = cors

    def may_refuse(self, scope: Scope) -> bool:
        """Whether a request is for an extraction."""
        return self._refusable(scope["method"], _path(scope)) is not None

    def reads_body(self, scope: Scope) -> bool:
        """Whether the deadline of a request for an extraction may be in its body, which is small."""
        endpoint = self._refusable(scope["method"], _path(scope))
        length = Headers(scope=scope).get("content-length", "")
        return bool(endpoint and endpoint.has_deadline and length.isdecimal() and int(length) <= MAX_READ_BYTES)

    def refuse(self, scope: Scope, body: bytes | None = None) -> Refusal | None:
        """The refusal of a request for an extraction, of which the headers have been read; None if the app is to answer
        it. body: if it is complete, and `reads_body`."""
        started_s = time.perf_counter()
        headers = Headers(scope=scope)
        if self._cors and "origin" in headers:
            return None
        try:
            tenant = self._access.tenant_of(scope, headers, _path(scope))
        except GLiNERBentoError:
            return None  # 401 comes before 429
        try:
            self._check(tenant, math.inf if body is None else _timeout_s(body), _cost(headers))
        except (QueueFull, RateLimited) as error:
            record = RequestRecord(request_id.choose(headers.get(request_id.HEADER)), error=error.code)
            endpoint = self._refusable(scope["method"], _path(scope))
            assert endpoint is not None, "only an extraction is refused"
            refusal = self._response(endpoint, error, record, tenant)
            self._recorder.refused(scope, record, tenant, refusal.status, time.perf_counter() - started_s)
            return refusal
        return None

    def expect(self, scope: Scope) -> Callable[[], None]:
        """Count a request that waits to be read as load; returns what ends this."""
        try:
            tenant = self._access.tenant_of(scope, Headers(scope=scope), _path(scope))
        except GLiNERBentoError:
            return lambda: None
        return self._expect(tenant)

    def _check(self, tenant: Tenant, timeout_s: float, cost: float) -> None:
        """Raise what `GatewayApp.admit` would raise. A request that it would not refuse is not counted here."""
        self._limits.check(tenant)
        try:
            self._check_load(tenant, timeout_s, cost)
        except QueueFull:
            with self._limits.request(tenant):
                raise

    def _response(
        self, endpoint: Endpoint, error: QueueFull | RateLimited, record: RequestRecord, tenant: Tenant
    ) -> Refusal:
        status = endpoint.statuses[error.code]
        body = msgspec.json.encode(endpoint.error.of(error.detail(record.request_id), status))
        headers = _HEADERS % (len(body), error.retry_after_s, (record.request_id or "").encode())
        for name, value in self._limits.headers(tenant).items():
            headers += f"{name}: {value}\r\n".encode()
        return Refusal(status, headers, body)


class _Deadline(msgspec.Struct):
    timeout_ms: float | None = None


_deadlines = msgspec.json.Decoder(_Deadline)


def _timeout_s(body: bytes) -> float:
    """The `timeout_ms` of a body, in seconds; infinite without one that is valid."""
    try:
        timeout_ms = _deadlines.decode(body).timeout_ms
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return math.inf
    return timeout_ms / 1000 if timeout_ms and timeout_ms > 0 else math.inf


def _cost(headers: Headers) -> float:
    """The tokens of a request, estimated from the length of its body."""
    length = headers.get("content-length", "")
    return min(max(SHORT_TOKENS, int(length) / _BYTES_PER_TOKEN), PASS_TOKENS) if length.isdecimal() else PASS_TOKENS


def _path(scope: Scope) -> str:
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))
