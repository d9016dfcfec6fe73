"""What holds for every route, also for BentoML's own: request ids, the limit on bodies, JSON only, the one error body."""

from __future__ import annotations

import contextlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.errors import GLiNERBentoError, TooLarge, UnsupportedMediaType
from gliner_bento.gateway import request_id
from gliner_bento.gateway.error_body import error_response, from_foreign

_BODY_METHODS = {"POST", "PUT", "PATCH"}


class GatewayMiddleware:
    """Pure ASGI, so that it costs next to nothing on the way of a good request."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        exchange = _Exchange(send, request_id.begin(headers.get(request_id.HEADER)))
        try:
            self._refuse_early(scope, headers)
        except GLiNERBentoError as error:
            await error_response(error)(scope, receive, exchange.send)
            return
        body = _LimitedBody(receive, self.max_body_bytes)
        await self.app(scope, body.receive, exchange.send_in_our_words(scope, body))

    def _refuse_early(self, scope: Scope, headers: Headers) -> None:
        if scope["method"] not in _BODY_METHODS:
            return
        with contextlib.suppress(ValueError):
            if int(headers.get("content-length", "0")) > self.max_body_bytes:
                raise _too_large(self.max_body_bytes)
        media_type = headers.get("content-type", "application/json").split(";")[0].strip().lower()
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise UnsupportedMediaType(f"send the body as application/json, not {media_type}")


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the body has more than {limit_bytes} bytes (max_body_bytes)")


class _LimitedBody:
    """The request's body, cut off where it passes the limit; needed for bodies that come without a length."""

    def __init__(self, receive: Receive, limit_bytes: int) -> None:
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._seen_bytes = 0
        self.error: TooLarge | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen_bytes += len(message.get("body", b""))
            if self._seen_bytes > self._limit_bytes:
                self.error = _too_large(self._limit_bytes)
                return {"type": "http.request", "body": b"", "more_body": False}
        return message


class _Exchange:
    """One answer on its way out: stamped with the request's id, and an error answer translated."""

    def __init__(self, send: Send, current_id: str) -> None:
        self._send = send
        self._request_id = current_id

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Request-ID"] = self._request_id
        await self._send(message)

    def send_in_our_words(self, scope: Scope, body: _LimitedBody) -> Send:
        """A `send` that holds back an error answer until it is whole, and says it in the one error body."""
        start: Message | None = None
        content = b""

        async def send(message: Message) -> None:
            nonlocal start, content
            if message["type"] == "http.response.start" and (message["status"] >= 400 or body.error):
                start = message
                return
            if start is None:
                await self.send(message)
                return
            content += message.get("body", b"")
            if message.get("more_body", False):
                return
            error = body.error or from_foreign(start["status"], content)
            if error is None:
                await self.send(start)
                await self.send({"type": "http.response.body", "body": content})
                return
            response = error_response(error)
            if allow := Headers(raw=start["headers"]).get("allow"):
                response.headers["Allow"] = allow
            await response(scope, _nothing, self.send)

        return send


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
