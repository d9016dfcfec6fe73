"""Work for a caller that has gone is stopped: a closed connection cancels the request that came over it.

Both services use it, so that it carries through: the client goes, the gateway's request is cancelled, its call to the
runner with it, and the runner's items leave the queue.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CancelOnDisconnect:
    """ASGI middleware. Watches the connection once the request's body has been read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, for as long as it is there."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read = asyncio.Event()

        async def receive_and_note() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                read.set()
            return message

        async def gone() -> None:
            await read.wait()
            while (await receive())["type"] != "http.disconnect":
                pass

        serving = asyncio.ensure_future(self.app(scope, receive_and_note, send))
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            serving.cancel()  # nothing happens to one that is done
        with contextlib.suppress(asyncio.CancelledError):
            await serving
