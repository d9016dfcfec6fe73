"""The runner's side of the transport: an ASGI app that serves a replica to a `HttpReplica`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gliner_bento.http.disconnect import CLIENT_CLOSED_REQUEST, CancelOnDisconnect
from gliner_bento.http.pieces import coalesced
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.messages import (
    Frames,
    ItemsMessage,
    OutcomesMessage,
    calls_of,
    encode,
    frame,
    reply_to,
    stream_messages,
)

MEDIA_TYPE = "application/msgpack"


class ReplicaApp:
    """Serves the replica of `bind`. A caller that closes its connection aborts its items.

    POST /extract          `ItemsMessage` -> `OutcomesMessage`
    POST /stream           `ItemsMessage` of one item -> frames of `StreamMessage`
    POST /install_adapter  a frame of arguments, then the archive -> `Reply`
    POST /call/{method}    arguments by name -> `Reply`, for each other method of `Replica` and `ReplicaAdapters`
    """

    def __init__(self) -> None:
        self._replica: Replica | None = None
        self._calls: dict[str, Callable[..., Awaitable[Any]]] = {}
        routes = {
            "/extract": self._extract,
            "/stream": self._stream,
            "/install_adapter": self._install_adapter,
            "/call/{method}": self._call,
        }
        self._app = CancelOnDisconnect(
            Starlette(
                routes=[Route(path, endpoint, methods=["POST"]) for path, endpoint in routes.items()],
                exception_handlers={ClientDisconnect: _left},
            )
        )

    def bind(self, replica: Replica) -> None:
        """Serve `replica` from now on."""
        self._replica = replica
        self._calls = calls_of(replica)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self._app(scope, receive, send)

    @property
    def replica(self) -> Replica:
        """The replica that is served."""
        assert self._replica is not None, "bind a replica before serving"
        return self._replica

    async def _extract(self, request: Request) -> Response:
        outcomes = await self.replica.extract(*ItemsMessage.read(await request.body()))
        pieces = OutcomesMessage.of(outcomes, self.replica.tokens_run)
        if len(outcomes) == 1:
            return Response(b"".join(pieces), media_type=MEDIA_TYPE)
        return StreamingResponse(coalesced(pieces), media_type=MEDIA_TYPE)

    async def _stream(self, request: Request) -> Response:
        return StreamingResponse(self._frames(await request.body()), media_type=MEDIA_TYPE)

    async def _frames(self, message: bytes) -> AsyncGenerator[bytes, None]:
        async with aclosing(stream_messages(self.replica, message)) as parts:
            async for part in parts:
                yield frame(part)

    async def _install_adapter(self, request: Request) -> Response:
        body, frames = request.stream(), Frames()
        async for piece in body:
            for message in frames.add(piece):
                arguments = msgspec.msgpack.decode(message)
                installed = self.replica.adapters.install(**arguments, archive=_rest(frames.rest, body))
                return _response(await reply_to(installed))
        raise ValueError("a call without arguments")

    async def _call(self, request: Request) -> Response:
        arguments = msgspec.msgpack.decode(await request.body())
        return _response(await reply_to(self._calls[request.path_params["method"]](**arguments)))


async def _left(_: Request, __: Exception) -> Response:
    """The caller has left before its body was read."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


def _response(message: Any) -> Response:
    return Response(encode(message), media_type=MEDIA_TYPE)


async def _rest(begun: bytes | bytearray, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield bytes(begun)
    async for piece in body:
        yield piece
