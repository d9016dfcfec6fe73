"""Cheap refusals, decided from a request's headers, or from a small body, before BentoML's app gets the request.

A server at many times its capacity refuses most of its requests. If they pass through BentoML and the middleware, a few
hundred refusals per second occupy a core. Another HTTP server than ours does not call this module; there,
`GatewayMiddleware` refuses the same requests with the same responses.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.types import Scope

from gliner_bento.errors import QueueFull, RateLimited
from gliner_bento.fairness.constants import ARRIVALS_SHARE, BYTES_PER_TOKEN, MAX_READ_BYTES, PASS_TOKENS, SHORT_TOKENS
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.edge import Arrival, Edge
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.loop_pacer import LoopPacer
from gliner_bento.gateway.media import JSON
from gliner_bento.gateway.policy.admission import Admission
from gliner_bento.gateway.request_record import Recorder
from gliner_bento.gateway.security_headers import SECURITY_HEADERS

logger = logging.getLogger("gliner_bento.gateway")

_COMMON_HEADERS = [(b"content-type", JSON.encode()), *SECURITY_HEADERS]


class _EarlyBody(msgspec.Struct):
    """The fields on which a refusal depends. If one of them is invalid, both count as absent."""

    timeout_ms: float | None = None
    model: str | None = None

    @property
    def timeout_s(self) -> float:
        """The request's timeout; infinite if it has no valid one."""
        return self.timeout_ms / 1000 if self.timeout_ms and self.timeout_ms > 0 else math.inf


_decoder = msgspec.json.Decoder(_EarlyBody)


@dataclass(slots=True)
class EarlyRequest:
    """An extraction whose headers have arrived.

    is_refusable: false if the app must answer, because the request is not allowed, or comes from a page of another
    origin and needs CORS headers. cost: estimated, in tokens. reads_body: whether the body may contain a deadline or a
    model, and is small enough to be read before the decision. fields: those of the body, once it has arrived.
    """

    arrival: Arrival
    endpoint: Endpoint
    is_refusable: bool
    cost: float
    reads_body: bool
    fields: _EarlyBody | None = None

    def read(self, body: bytes) -> None:
        """The body has arrived."""
        try:
            self.fields = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.fields = _EarlyBody()

    @property
    def model(self) -> str | None:
        """The name of its model: in the body, else in the URL. None if only the body, which will be read, shows it."""
        if self.fields is None and self.reads_body:
            return None
        return (self.fields and self.fields.model) or self.arrival.context.model


@dataclass(frozen=True, slots=True)
class Refusal:
    """The response to a refused extraction."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class EarlyRefusal:
    """Refuses extractions once their headers, or their small bodies, have been read, and records the refusals. Admitted
    extractions are passed to the app, at most one per iteration of the event loop.

    cors: whether responses to pages of other origins need CORS headers; their requests are not refused here.
    """

    def __init__(self, edge: Edge, admission: Admission, recorder: Recorder, *, cors: bool) -> None:
        self._edge = edge
        self._admission = admission
        self._recorder = recorder
        self._cors = cors
        self._pacer = LoopPacer()

    def arrive(self, scope: Scope) -> EarlyRequest | None:
        """The headers of a request have arrived; see `Edge.arrive`. Returns the request if it is an extraction; all
        other requests are never refused."""
        arrival = self._edge.arrive(scope)
        endpoint, headers = arrival.endpoint, arrival.headers
        if endpoint is None or not endpoint.is_refusable:
            return None
        is_refusable = arrival.refused is None and not (self._cors and "origin" in headers)
        content_length = headers.get("content-length", "")
        length = int(content_length) if content_length.isdecimal() else None
        cost = PASS_TOKENS if length is None else min(max(SHORT_TOKENS, length / BYTES_PER_TOKEN), PASS_TOKENS)
        is_small = length is not None and length <= MAX_READ_BYTES
        # A client that sends Expect may wait for `100 Continue`, which uvicorn sends when the app reads the body.
        reads_body = is_small and endpoint.has_deadline and "expect" not in headers
        return EarlyRequest(arrival, endpoint, is_refusable, cost, reads_body)

    def try_refuse(self, request: EarlyRequest, share: float = ARRIVALS_SHARE) -> Refusal | None:
        """As `refuse`, but None if the check itself fails: the app then answers."""
        try:
            return self.refuse(request, share)
        except Exception:
            logger.exception("%s %s could not be refused early", request.arrival.method, request.arrival.path)
            return None

    def refuse(self, request: EarlyRequest, share: float = ARRIVALS_SHARE) -> Refusal | None:
        """The response if the extraction is refused, else None. share: see `OverloadPolicy.check`."""
        if not request.is_refusable:
            return None
        started_s = time.perf_counter()
        context = request.arrival.context
        timeout_s = request.fields.timeout_s if request.fields else math.inf
        try:
            self._admission.refuse(context.tenant, timeout_s, request.cost, request.model, share)
        except (QueueFull, RateLimited) as error:
            refusal = self._response(request.endpoint, error, context)
            context.record.error = error.code
            span = self._recorder.begin(request.arrival)
            self._recorder.end(request.arrival, span, refusal.status, time.perf_counter() - started_s)
            return refusal
        request.arrival.has_room = True
        return None

    async def await_turn(self, request: EarlyRequest) -> Refusal | None:
        """Wait until the app may get the extraction. Returns a response if it is refused after all, because requests
        that were admitted meanwhile cost more than the average."""
        if self._pacer.free:
            await self._pacer.wait()
            return None
        stop_counting = self.count_unread(request)
        try:
            await self._pacer.wait()
        finally:
            stop_counting()
        return self.try_refuse(request, share=1.0)

    def count_unread(self, request: EarlyRequest) -> Callable[[], None]:
        """Count as load a request that waits to be read. Returns a function that stops counting it."""
        if not request.is_refusable:
            return lambda: None
        return self._admission.count_unread(request.arrival.context.tenant, request.model)

    def _response(self, endpoint: Endpoint, error: QueueFull | RateLimited, context: Context) -> Refusal:
        status = endpoint.statuses[error.code]
        body = msgspec.json.encode(endpoint.error.of(error.detail(context.id), status))
        more = {
            "content-length": len(body),
            "retry-after": error.retry_after_s,
            "x-request-id": context.id,
            **self._admission.quota(context.tenant),
        }
        headers = [*_COMMON_HEADERS, *((name.lower().encode(), str(value).encode()) for name, value in more.items())]
        return Refusal(status, headers, body)
