"""ASGI middleware around everything, BentoML included, that sends the refusals of `EarlyRefusal`."""

from __future__ import annotations

import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.gateway.early_refusal import EarlyRefusal, Refusal
from gliner_bento.gateway.turns import Turns

logger = logging.getLogger("gliner_bento.gateway")


class RefuseEarly:
    """Refuses an extraction when its headers, or its small body, have been read; else `app` answers it, one per
    iteration of the event loop."""

    def __init__(self, app: ASGIApp, early: EarlyRefusal, turns: Turns) -> None:
        self.app, self._early, self._turns = app, early, turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not self._early.may_refuse(scope):
            await self.app(scope, receive, send)
            return
        body: bytes | None = None
        refusal = self._refusal(scope, body)
        if not refusal and self._early.reads_body(scope):
            body = await _read(receive)
            if body is None:
                return
            receive = _replay(body, receive)
            refusal = self._refusal(scope, body)
        if not refusal and self._turns.free:
            await self._turns.wait()
        elif not refusal:
            expected = self._early.expect(scope)
            try:
                await self._turns.wait()
            finally:
                expected()
            refusal = self._refusal(scope, body)  # what was admitted meanwhile may cost more than was expected
        if refusal:
            await _send(refusal, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope, body: bytes | None) -> Refusal | None:
        """If the check itself fails, the app answers."""
        try:
            return self._early.refuse(scope, body)
        except Exception:
            logger.exception("%s %s could not be refused early", scope["method"], scope["path"])
            return None


async def _send(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """A connection that is not kept is closed after the body: closed before, the body would reset it, and the client
    would lose the response. A client that waits for 100 may send its body or not."""
    given = Headers(scope=scope)
    headers = [tuple(line.split(b": ", 1)) for line in refusal.headers.splitlines()]
    if "expect" in given:
        headers.append((b"connection", b"close"))
    elif scope["http_version"] == "1.0" or "close" in given.get("connection", "").lower():
        while (await receive()).get("more_body"):
            pass
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})


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
