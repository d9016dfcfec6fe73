"""The routes of extraction: `/v1/extract`, `/v1/extract/stream`, `/v1/extract/batch`; and `/v1/requests/{id}/abort`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gliner_bento.errors import Aborted, ErrorBody, GLiNERBentoError
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import EndpointGroup, json_response, path_parameter
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import json_parts
from gliner_bento.gateway.media import NDJSON
from gliner_bento.http.pieces import PiecesResponse, coalesced
from gliner_bento.status_types import AbortResponse
from gliner_bento.tasks.extraction import (
    LABELS,
    RELATION_LABELS,
    TEXT,
    ExtractBatchResponse,
    ExtractResponse,
    StreamedEnd,
    StreamedEntity,
)
from gliner_bento.tasks.requests import ExtractBatchRequest, ExtractRequest, request_of

EXTRACT_ERRORS = (400, 404, 413, 415, 422, 429, 499, 500, 503, 504, 507)
_NOT_ASCII = re.compile("[^\\x00-\\x7f]+")
_BATCH_ERRORS = (400, 413, 415, 422, 429, 500, 503, 504)  # of the whole request; an item's error is in its result


async def answer_one(gateway: Gateway, context: Context, body: Mapping[str, Any]) -> Response:
    """The response to a request for one text, whose fields are validated."""
    context.choose_model(body["model"])
    return json_response(await gateway.run(context, request_of(body)))


async def answer_batch(gateway: Gateway, context: Context, body: Mapping[str, Any]) -> Response:
    """The response to a request for several texts, whose fields are validated."""
    context.choose_model(body["model"])
    return json_response(await gateway.run_batch(context, await gateway.batch_of(context, body)))


async def _single(gateway: Gateway, context: Context, request: Request) -> Response:
    return await answer_one(gateway, context, await _fields(ExtractRequest, request))


async def _batch(gateway: Gateway, context: Context, request: Request) -> Response:
    return await answer_batch(gateway, context, await _fields(ExtractBatchRequest, request))


async def _stream(gateway: Gateway, context: Context, request: Request) -> Response:
    """An error before the end of the first pass is the response; a later error is the last line. The headers are sent
    after the first pass, even if no entity is final then."""
    body = await _fields(ExtractRequest, request)
    context.choose_model(body["model"])
    lines = gateway.run_stream(context, request_of(body))
    first = await lines.__anext__()
    return _Lines(context, first, lines)


async def _fields(model: type[BaseModel], request: Request) -> Mapping[str, Any]:
    """The validated fields of the body."""
    return vars(await json_body(request, model))


async def _abort(gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await gateway.abort(context, request.path_params["request_id"]))


class _Lines(PiecesResponse):
    """Sends a JSON line for each entity. At its end, closes `rest`; if the client has left, this aborts the item."""

    def __init__(self, context: Context, first: Sequence[Any], rest: AsyncGenerator[Sequence[Any], None]) -> None:
        self._context, self._rest = context, rest
        super().__init__(self._encoded(first), media_type=NDJSON)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            self._context.record.error = Aborted.code
            raise
        finally:
            await self._rest.aclose()

    async def _encoded(self, first: Sequence[Any]) -> AsyncIterator[bytes]:
        async for line in self._lines(first):
            async for piece in coalesced(chain(json_parts(line), (b"\n",))):
                yield piece if piece.isascii() else _ascii(piece)

    async def _lines(self, first: Sequence[Any]) -> AsyncIterator[Any]:
        try:
            for line in first:
                yield line
            async for lines in self._rest:
                for line in lines:
                    yield line
        except GLiNERBentoError as error:
            self._context.record.error = error.code
            yield ErrorBody(error.detail(self._context.id))


def _ascii(piece: bytes) -> bytes:
    """The same JSON in ASCII, because many clients also split lines at Unicode's other line separators."""
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], piece.decode()).encode()


def _stream_operation(operation: dict[str, Any]) -> dict[str, Any]:
    kinds = (StreamedEntity, StreamedEnd, ErrorBody)
    lines = {"oneOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]}
    operation["responses"]["200"]["content"] = {NDJSON: {"schema": lines}}
    return operation


_EXAMPLE = {ExtractRequest: {"text": TEXT, "labels": LABELS, "relations": RELATION_LABELS}}
_GROUP = EndpointGroup(tag="extract", examples=_EXAMPLE)

ENDPOINTS = [
    _GROUP.post(
        "/v1/extract",
        _single,
        "extract",
        "Entities and relations of one text",
        "Find the entities of any types that you name in a text of any length, and the relations of the "
        "types that you name between them. Each entity has its position in the text and a score.",
        request=ExtractRequest,
        response=ExtractResponse,
        errors=EXTRACT_ERRORS,
    ),
    _GROUP.post(
        "/v1/extract/stream",
        _stream,
        "extract_stream",
        "Entities of one text as they become final, in lines of JSON",
        "A line for each entity, in order of position; the last line holds the relations and the usage. If "
        "an error occurs after the first window, the last line is an error body. request_timeout_s limits the time "
        "without progress, timeout_ms the total time.",
        request=ExtractRequest,
        errors=EXTRACT_ERRORS,
        more_types=[StreamedEntity, StreamedEnd],
        extra=_stream_operation,
    ),
    _GROUP.post(
        "/v1/extract/batch",
        _batch,
        "extract_batch",
        "One result or error per text",
        "Find entities and relations in several texts, in one request. A text that fails does not fail the "
        "others: results[i] is the result of the i-th text, or its error.",
        request=ExtractBatchRequest,
        response=ExtractBatchResponse,
        errors=_BATCH_ERRORS,
        examples={ExtractBatchRequest: {"texts": [TEXT, "Ada Lovelace lived in London."], "labels": LABELS}},
    ),
    _GROUP.post(
        "/v1/requests/{request_id}/abort",
        _abort,
        "abort_request",
        "Abort the requests that have this id",
        "End the caller's own requests that were sent with this id; they fail with 499. `aborted` is "
        "false if there are none.",
        response=AbortResponse,
        parameters=[path_parameter("request_id", "The id that was sent with the request.")],
    ),
]
