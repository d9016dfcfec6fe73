"""Our routes beside `/v1/extract` and `/v1/extract/batch`, which BentoML serves for its clients' sake."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from gliner_bento.errors import ErrorBody, GLiNERBentoError
from gliner_bento.gateway import adapter_routes, request_id
from gliner_bento.gateway.compat import gliner_serve
from gliner_bento.gateway.error_body import error_response, from_model
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.media import NDJSON
from gliner_bento.gateway.openapi import openapi_document
from gliner_bento.types import ExtractRequest

INDEX_PAGE = Path(__file__).parent / "pages" / "index.html"

Answer = TypeVar("Answer", bound=BaseModel)


class GatewayApp:
    """Binds routes to a gateway that comes later: BentoML mounts the app before it makes the service."""

    def __init__(self, route_prefix: str) -> None:
        self._gateway: Gateway | None = None
        self._docs_json = openapi_document(route_prefix)
        self.asgi = Starlette(
            routes=[
                Route("/v1/extract/stream", self._extract_stream, methods=["POST"]),
                Route("/v1/model", self._model, methods=["GET"]),
                Route("/v1/requests/{request_id}/abort", self._abort, methods=["POST"]),
                Route("/docs.json", self._docs, methods=["GET"]),
                Route("/", self._index, methods=["GET"]),
                *adapter_routes.routes(self._bound),
                *gliner_serve.routes(route_prefix, self._bound),
            ]
        )

    def bind(self, gateway: Gateway) -> None:
        """Serve `gateway` from now on."""
        self._gateway = gateway

    def _bound(self) -> Gateway:
        assert self._gateway is not None, "the service binds its gateway before it serves"
        return self._gateway

    async def _extract_stream(self, request: Request) -> Response:
        """An error before the first line is the answer; a later one is the last line."""
        try:
            asked = ExtractRequest.model_validate_json(await request.body() or b"{}")
            found = self._bound().extract_stream(asked)
            first = await found.__anext__()
        except ValidationError as invalid:
            return error_response(from_model(invalid))
        except GLiNERBentoError as error:
            return error_response(error)
        return StreamingResponse(_lines(first, found), media_type=NDJSON)

    async def _model(self, _: Request) -> Response:
        return as_response(await respond(self._bound().model()))

    async def _abort(self, request: Request) -> Response:
        return as_response(await respond(self._bound().abort(request.path_params["request_id"])))

    async def _docs(self, _: Request) -> Response:
        return Response(self._docs_json, media_type="application/json")

    async def _index(self, _: Request) -> Response:
        return FileResponse(INDEX_PAGE)


async def _lines(first: BaseModel, others: AsyncIterator[BaseModel]) -> AsyncIterator[str]:
    yield _line(first)
    try:
        async for other in others:
            yield _line(other)
    except GLiNERBentoError as error:
        yield _line(ErrorBody(error=error.detail(request_id.current())))


def _line(content: BaseModel) -> str:
    """In ASCII: many a client ends lines at Unicode's other line ends, too."""
    return f"{json.dumps(content.model_dump(mode='json'))}\n"


async def respond(answer: Awaitable[Answer]) -> Answer | Response:
    """Wait for `answer`; a known error becomes the error response."""
    try:
        return await answer
    except GLiNERBentoError as error:
        return error_response(error)


def as_response(answer: BaseModel | Response) -> Response:
    """A model as a JSON response."""
    if isinstance(answer, Response):
        return answer
    return Response(answer.model_dump_json(), media_type="application/json")
