"""A closed connection cancels the request that came over it, so that no work is done for a disconnected client.

Gateway and runner both use it: the client disconnects, the gateway's request is cancelled and closes its call to the
runner, and the runner's items leave the queue.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CancelOnDisconnect:
    """ASGI middleware. Watches the connection after the request's body has been read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; cancel it if the client disconnects."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read, answered, left = asyncio.Event(), False, False

        async def receive_and_note() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                read.set()
            return message

        async def send_and_note(message: Message) -> None:
            nonlocal answered
            answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async def stop_if_gone() -> None:
            nonlocal left
            await read.wait()
            while (await receive())["type"] != "http.disconnect":
                pass
            if not answered:  # after the response, background work continues
                left = True
                serving.cancel()

        serving = asyncio.ensure_future(self.app(scope, receive_and_note, send_and_note))
        watching = asyncio.ensure_future(stop_if_gone())
        try:
            await serving
        except asyncio.CancelledError:
            if not left:  # the server cancels this request, and `serving` with it
                raise
        finally:
            watching.cancel()
