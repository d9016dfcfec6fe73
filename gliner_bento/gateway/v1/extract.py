"""The routes of extraction: `/v1/extract`, `/v1/extract/stream`, `/v1/extract/batch`; and `/v1/requests/{id}/abort`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorBody
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import EndpointGroup, json_response, path_parameter
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_lines import LinesResponse, lines_content
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
    return LinesResponse(context, first, lines)


async def _fields(model: type[BaseModel], request: Request) -> Mapping[str, Any]:
    """The validated fields of the body."""
    return vars(await json_body(request, model))


async def _abort(gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await gateway.abort(context, request.path_params["request_id"]))


def _stream_operation(operation: dict[str, Any]) -> dict[str, Any]:
    operation["responses"]["200"]["content"] = lines_content(StreamedEntity, StreamedEnd, ErrorBody)
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
