"""Cancels the request of a closed connection, so that no work is done for a disconnected client.

Gateway and runner both use it: the client disconnects, the gateway's request is cancelled and closes its call to the
runner, and the runner's items leave the queue.

A cancelled request is answered with 499 (nginx's status for a client that closed the connection). No client receives
it, but it ends middleware that waits for an answer: BentoML's would wait for its timeout, and delay the shutdown.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLIENT_CLOSED_REQUEST = 499
LEFT = "gliner_bento.left"
"""The key in an ASGI scope of a future that is done once the connection is lost. A server that sets it saves a task per
request, which waits for `http.disconnect`."""
_CANCELLED: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
"""How often `cancel` has cancelled a task, for Python 3.10, whose tasks do not count it."""


class CancelOnDisconnect:
    """ASGI middleware. Watches the connection after the request's body has been read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; cancel it if the client disconnects."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope.get(LEFT), receive, send)
        if LEFT not in scope:  # other tasks get time between the requests of a client in the same event loop
            await asyncio.sleep(0)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not exchange.left:  # the server itself has cancelled this request
                raise
            if not exchange.begun:
                await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send)
        finally:
            exchange.stop_watching()
            if exchange.left:  # also if the app has raised something else, or has returned
                uncancelled(asyncio.current_task())


def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task to end what it awaits: `uncancelled` follows once it has ended."""
    if sys.version_info < (3, 11):
        _CANCELLED[task] = _CANCELLED.get(task, 0) + 1
    task.cancel()


def uncancelled(task: asyncio.Task[Any] | None) -> bool:
    """A task was cancelled once to end what it awaited, and continues. Returns False if it was cancelled once more,
    which Python 3.10 shows only of `cancel`."""
    if task is None:
        return True
    if sys.version_info >= (3, 11):
        return not task.uncancel()
    more = _CANCELLED.pop(task, 1) - 1
    if more:
        _CANCELLED[task] = more
    return not more


class _Exchange:
    """One request, in the current task, and its response. lost: see LEFT. begun: the response has begun. left: the
    client has disconnected before the response was complete."""

    def __init__(self, lost: asyncio.Future[None] | None, receive: Receive, send: Send) -> None:
        self._lost, self._receive, self._send = lost, receive, send
        self._task = asyncio.current_task()
        self._unwatch: Callable[[], object] | None = None
        self.begun = self.left = False
        self._answered = False

    async def receive(self) -> Message:
        message = await self._receive()
        if self._unwatch is None and not message.get("more_body", False):  # the body has been read
            self._unwatch = self._watch()
        return message

    async def send(self, message: Message) -> None:
        self.begun = True
        self._answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    def stop_watching(self) -> None:
        self._answered = True  # `_cancel` may already be due
        if self._unwatch:
            self._unwatch()
            self._unwatch = None  # it refers to this object

    def _watch(self) -> Callable[[], object]:
        """Cancel the request once the client has left. Returns a function that stops this."""
        if self._lost is None:
            return asyncio.ensure_future(self._until_disconnected()).cancel
        self._lost.add_done_callback(self._cancel)
        return partial(self._lost.remove_done_callback, self._cancel)

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _cancel(self, _: object = None) -> None:
        if not self._answered:  # after the response, background work continues
            self.left = True
            assert self._task
            cancel(self._task)
