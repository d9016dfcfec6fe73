"""Cancels the request of a closed connection, so that no work is done for a disconnected client.

Gateway and runner both use it: the client disconnects, the gateway's request is cancelled and closes its call to the
runner, and the runner's items leave the queue.

A cancelled request is answered with 499 (nginx's status for a client that closed the connection). No client receives
it, but it ends middleware that waits for an answer: BentoML's would wait for its timeout, and delay the shutdown.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLIENT_CLOSED_REQUEST = 499


class CancelOnDisconnect:
    """ASGI middleware. Watches the connection after the request's body has been read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; cancel it if the client disconnects."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        serving = asyncio.ensure_future(self.app(scope, exchange.receive, exchange.send))
        watching = asyncio.ensure_future(exchange.cancel_when_left(serving))
        try:
            await serving
        except asyncio.CancelledError:
            if not exchange.left:  # the server itself has cancelled this request, and with it `serving`
                raise
            if not exchange.begun:
                await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send)
        finally:
            watching.cancel()


class _Exchange:
    """One request and its response. begun: the response has begun. answered: the response is complete. left: the client
    has disconnected before the response was complete."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._body_read = asyncio.Event()
        self.begun = self.answered = self.left = False

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body", False):
            self._body_read.set()
        return message

    async def send(self, message: Message) -> None:
        self.begun = True
        self.answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def cancel_when_left(self, serving: asyncio.Future[None]) -> None:
        await self._body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.answered:  # after the response, background work continues
            self.left = True
            serving.cancel()
