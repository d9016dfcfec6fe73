"""The runner's side of the transport: an ASGI app that serves a replica to a `HttpReplica`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from gliner_bento.http.disconnect import CLIENT_CLOSED_REQUEST, CancelOnDisconnect
from gliner_bento.http.pieces import PiecesResponse, coalesced
from gliner_bento.replicas.base import Models, Replica
from gliner_bento.replicas.messages import Frames, OutcomesMessage
from gliner_bento.replicas.remote import ReplicaServer

MEDIA_TYPE = "application/msgpack"


class ReplicaApp:
    """Serves the replica that `bind` sets. A caller that closes its connection aborts its items.

    POST /extract   `ItemsMessage` -> `OutcomesMessage`
    POST /stream    `ItemsMessage` of one item -> frames of `StreamMessage`
    POST /{method}  a command or the arguments of another method -> `Reply`; see `ReplicaServer.call`
    POST /upload/{method}  a frame with the command, then the archive that comes with it -> `Reply`

    The same routes below /models/{model} serve the model of that name.
    """

    def __init__(self) -> None:
        self._server: ReplicaServer | None = None
        self._models: Models | None = None
        handlers = {
            "/extract": self._extract,
            "/stream": self._stream,
            "/upload/{method}": self._upload,
            "/{method}": self._call,
        }
        replica_routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in handlers.items()]
        routes = [Mount("/models/{model}", routes=replica_routes), *replica_routes]
        self._routes = Starlette(routes=routes, exception_handlers={ClientDisconnect: _disconnected})
        self._app = CancelOnDisconnect(self._serve)

    def bind(self, replica: Replica, models: Models | None = None) -> None:
        """Serve `replica` from now on, and each replica of `models` below /models."""
        self._models = models
        self._server = ReplicaServer(replica, models)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Extractions do not take Starlette's router, whose layers took a third of the time of a call here."""
        if not _is_extraction(scope):
            await self._routes(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await self._extract(request)
        except ClientDisconnect as error:
            response = await _disconnected(request, error)
        await response(scope, receive, send)

    def server(self, request: Request) -> ReplicaServer:
        """The server of the bound replica, or of the model in the path."""
        assert self._server is not None, "bind a replica before serving"
        model = request.path_params.get("model")
        return ReplicaServer(self._models.replica(model)) if self._models and model else self._server

    async def _extract(self, request: Request) -> Response:
        server = self.server(request)
        outcomes = await server.extract(await request.body())
        pieces = OutcomesMessage.of(outcomes, server.replica.tokens_run)
        if len(outcomes) == 1:
            return _response(b"".join(pieces))
        return PiecesResponse(coalesced(pieces), media_type=MEDIA_TYPE)

    async def _stream(self, request: Request) -> Response:
        message = await request.body()
        return PiecesResponse(self.server(request).stream(message), media_type=MEDIA_TYPE)

    async def _upload(self, request: Request) -> Response:
        body, frames = request.stream(), Frames()
        async for piece in body:
            message = next(frames.add(piece), None)  # the command, once complete; the archive follows
            if message is not None:
                archive = _archive(frames.rest, body)
                method = request.path_params["method"]
                return _response(await self.server(request).call(method, message, archive))
        raise ValueError("an archive without a command")

    async def _call(self, request: Request) -> Response:
        message = await request.body()
        return _response(await self.server(request).call(request.path_params["method"], message))


def _is_extraction(scope: Scope) -> bool:
    """Whether a request is `POST /extract`."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) == "/extract"


async def _disconnected(_: Request, __: Exception) -> Response:
    """The answer to a caller that disconnected before its request's body was read."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


def _response(message: bytes) -> Response:
    return Response(message, media_type=MEDIA_TYPE)


async def _archive(first: bytearray, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The archive: the bytes that arrived with the command, and the rest of the body."""
    yield bytes(first)
    async for piece in body:
        yield piece
