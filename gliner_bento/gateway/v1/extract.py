"""`/v1/extract`, `/v1/extract/batch`, `/v1/extract/stream`, `/v1/requests/{id}/abort`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import chain
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gliner_bento.errors import Aborted, ErrorBody, GLiNERBentoError
from gliner_bento.gateway import request_id, request_record
from gliner_bento.gateway.endpoint import Endpoint, Operation, json_response, path_parameter
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import json_parts
from gliner_bento.gateway.media import NDJSON
from gliner_bento.http.pieces import coalesced
from gliner_bento.types import (
    AbortResponse,
    ExtractBatchRequest,
    ExtractBatchResponse,
    ExtractRequest,
    ExtractResponse,
    StreamedEnd,
    StreamedEntity,
)

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]

_REQUEST = {"text": TEXT, "labels": LABELS, "relations": ["founded", "founded in", "headquartered in"]}
_BATCH = {"texts": [TEXT, "Ada Lovelace lived in London."], "labels": LABELS}

EXTRACT_ERRORS = (400, 404, 413, 415, 422, 429, 499, 500, 503, 504, 507)
_NOT_ASCII = re.compile("[^\\x00-\\x7f]+")
_BATCH_ERRORS = (400, 413, 415, 422, 429, 500, 503, 504)  # of the request as a whole; an item's error is in its result


async def answer_extract(gateway: Gateway, request: ExtractRequest) -> Response:
    """The response to one parsed request."""
    return json_response(await gateway.extract(request))


async def answer_batch(gateway: Gateway, request: ExtractBatchRequest) -> Response:
    """The response to one parsed request."""
    return json_response(await gateway.extract_batch(request))


async def _extract(gateway: Gateway, request: Request) -> Response:
    return await answer_extract(gateway, ExtractRequest.model_validate_json(await request.body() or b"{}"))


async def _extract_batch(gateway: Gateway, request: Request) -> Response:
    return await answer_batch(gateway, ExtractBatchRequest.model_validate_json(await request.body() or b"{}"))


async def _extract_stream(gateway: Gateway, request: Request) -> Response:
    """An error before the first pass has finished is the response; a later one is the last line. The first entity may
    be far into the text: the headers do not wait for it."""
    parts = gateway.extract_stream(ExtractRequest.model_validate_json(await request.body() or b"{}"))
    first = await parts.__anext__()
    return _Lines(first, parts)


async def _abort(gateway: Gateway, request: Request) -> Response:
    return json_response(await gateway.abort(request.path_params["request_id"]))


class _Lines(StreamingResponse):
    """A line for each part. Closes `rest` when it ends, so that the item is aborted if the client has disconnected."""

    def __init__(self, first: Sequence[Any], rest: AsyncGenerator[Sequence[Any], None]) -> None:
        self._rest = rest
        super().__init__(self._written(first), media_type=NDJSON)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            request_record.current().error = Aborted.code
            raise
        finally:
            await self._rest.aclose()

    async def _written(self, first: Sequence[Any]) -> AsyncIterator[bytes]:
        async for content in self._contents(first):
            async for piece in coalesced(chain(json_parts(content), (b"\n",))):
                yield piece if piece.isascii() else _ascii(piece)

    async def _contents(self, first: Sequence[Any]) -> AsyncIterator[Any]:
        try:
            for line in first:
                yield line
            async for lines in self._rest:
                for line in lines:
                    yield line
        except GLiNERBentoError as error:
            request_record.current().error = error.code
            yield ErrorBody(error.detail(request_id.current()))


def _ascii(piece: bytes) -> bytes:
    """The same JSON in ASCII, because many clients also split lines at Unicode's other line separators."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], piece.decode()).encode()


def _stream_operation(operation: dict[str, Any]) -> dict[str, Any]:
    kinds = (StreamedEntity, StreamedEnd, ErrorBody)
    lines = {"oneOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]}
    operation["responses"]["200"]["content"] = {NDJSON: {"schema": lines}}
    return operation


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/v1/extract",
        scope="extract",
        answer=_extract,
        operation=Operation(
            name="extract",
            tag="extract",
            summary="Entities and relations of one text",
            description="Find the entities of any types that you name in a text of any length, and the relations of "
            "the types that you name between them. Each entity has its characters in the text and a score.",
            request=ExtractRequest,
            answer=ExtractResponse,
            errors=EXTRACT_ERRORS,
            examples={ExtractRequest: _REQUEST},
        ),
    ),
    Endpoint(
        method="POST",
        path="/v1/extract/stream",
        scope="extract",
        answer=_extract_stream,
        operation=Operation(
            name="extract_stream",
            tag="extract",
            summary="Entities of one text as they become final, in lines of JSON",
            description="A line for each entity, in order of position; the last line holds the relations and the "
            "usage. An error after the first window is the last line, an error body. request_timeout_s limits the time "
            "without progress; timeout_ms the whole.",
            request=ExtractRequest,
            errors=EXTRACT_ERRORS,
            examples={ExtractRequest: _REQUEST},
            more_types=(StreamedEntity, StreamedEnd),
            extra=_stream_operation,
        ),
    ),
    Endpoint(
        method="POST",
        path="/v1/extract/batch",
        scope="extract",
        answer=_extract_batch,
        operation=Operation(
            name="extract_batch",
            tag="extract",
            summary="One result or error per text",
            description="Find entities and relations in several texts, in one request. A text that fails does not fail "
            "the others: results[i] is the result of the i-th text, or its error.",
            request=ExtractBatchRequest,
            answer=ExtractBatchResponse,
            errors=_BATCH_ERRORS,
            examples={ExtractBatchRequest: _BATCH},
        ),
    ),
    Endpoint(
        method="POST",
        path="/v1/requests/{request_id}/abort",
        scope="extract",
        answer=_abort,
        operation=Operation(
            name="abort_request",
            tag="extract",
            summary="Abort the requests that have this id",
            description="End the caller's own requests that were sent with this id; they fail with 499. `aborted` is "
            "false if there are none.",
            answer=AbortResponse,
            parameters=[path_parameter("request_id", "The id that was sent with the request.")],
        ),
    ),
]
