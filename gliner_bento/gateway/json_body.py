"""Reads the JSON body of a request, for every route."""

from __future__ import annotations

import codecs
from collections.abc import Container
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.surrogates import without_escaped_surrogates

Body = TypeVar("Body", bound=BaseModel)


async def json_body(request: Request, model: type[Body]) -> Body:
    """The validated body; an empty one counts as `{}`. Raises pydantic's `ValidationError`."""
    return model.model_validate_json(await json_content(request) or b"{}")


async def json_content(request: Request) -> bytes:
    """The body, `readable`."""
    return readable(await request.body())


def readable(body: bytes) -> bytes:
    """JSON without a byte order mark, and with U+FFFD for lone surrogates."""
    return without_escaped_surrogates(body.removeprefix(codecs.BOM_UTF8))


class ReadableBody:
    """ASGI middleware around a framework that reads bodies itself, so that it gets what `json_content` returns.

    paths: of the requests that the framework reads.
    """

    def __init__(self, app: ASGIApp, paths: Container[str]) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        is_read = scope["type"] == "http" and scope["path"] in self._paths
        await self._app(scope, _Whole(receive) if is_read else receive, send)


class _Whole:
    """Receives a request's body as one message."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_read = False

    async def __call__(self) -> Message:
        """The body, readable; then what comes behind it."""
        if self._is_read:
            return await self._receive()
        parts, more = [], True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        self._is_read = True
        return {"type": "http.request", "body": readable(b"".join(parts)), "more_body": False}
