"""The routes of each task: `/v1/extract`, `/v1/extract/stream`, `/v1/extract/batch`; and `/v1/requests/{id}/abort`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gliner_bento.errors import Aborted, ErrorBody, GLiNERBentoError
from gliner_bento.gateway import request_id, request_record
from gliner_bento.gateway.endpoint import Endpoint, Operation, json_response, path_parameter
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import json_parts
from gliner_bento.gateway.media import NDJSON
from gliner_bento.http.pieces import PiecesResponse, coalesced
from gliner_bento.status_types import AbortResponse
from gliner_bento.tasks.base import AnyTask

TASK_ERRORS = (400, 404, 413, 415, 422, 429, 499, 500, 503, 504, 507)
_NOT_ASCII = re.compile("[^\\x00-\\x7f]+")
_BATCH_ERRORS = (400, 413, 415, 422, 429, 500, 503, 504)  # of the whole request; an item's error is in its result


async def answer_one(task: AnyTask, gateway: Gateway, body: Mapping[str, Any]) -> Response:
    """The response to a request for one text, whose fields are validated."""
    return json_response(await gateway.run(task.request_of(body)))


async def answer_batch(task: AnyTask, gateway: Gateway, body: Mapping[str, Any]) -> Response:
    """The response to a request for several texts, whose fields are validated."""
    return json_response(await gateway.run_batch(await gateway.batch_of(task, body)))


async def _single(task: AnyTask, gateway: Gateway, request: Request) -> Response:
    return await answer_one(task, gateway, await _fields(task.request_model, request))


async def _batch(task: AnyTask, gateway: Gateway, request: Request) -> Response:
    return await answer_batch(task, gateway, await _fields(task.batch_model, request))


async def _stream(task: AnyTask, gateway: Gateway, request: Request) -> Response:
    """An error before the end of the first pass is the response; a later error is the last line. The headers are sent
    after the first pass, even if no part is final then."""
    lines = gateway.run_stream(task.request_of(await _fields(task.request_model, request)))
    first = await lines.__anext__()
    return _Lines(first, lines)


async def _fields(model: type[BaseModel], request: Request) -> Mapping[str, Any]:
    """The validated fields of the body."""
    return vars(await json_body(request, model))


async def _abort(gateway: Gateway, request: Request) -> Response:
    return json_response(await gateway.abort(request.path_params["request_id"]))


class _Lines(PiecesResponse):
    """A response with a JSON line per part. At its end, closes `rest`: if the client has left, this aborts the item."""

    def __init__(self, first: Sequence[Any], rest: AsyncGenerator[Sequence[Any], None]) -> None:
        self._rest = rest
        super().__init__(self._encoded(first), media_type=NDJSON)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            request_record.current().error = Aborted.code
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
            request_record.current().error = error.code
            yield ErrorBody(error.detail(request_id.current()))


def _ascii(piece: bytes) -> bytes:
    """The same JSON in ASCII, because many clients also split lines at Unicode's other line separators."""
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], piece.decode()).encode()


def task_endpoints(task: AnyTask) -> list[Endpoint]:
    """The routes of a task: for one text, for one text as a stream, and for several texts."""
    example = {task.request_model: task.example}
    line_types = [kind for kind in (task.line, task.end) if kind]

    def stream_operation(operation: dict[str, Any]) -> dict[str, Any]:
        lines = {"oneOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in (*line_types, ErrorBody)]}
        operation["responses"]["200"]["content"] = {NDJSON: {"schema": lines}}
        return operation

    def endpoint(suffix: str, handler: Any, request: type[Any], **operation: Any) -> Endpoint:
        route = task.routes[suffix]
        return Endpoint(
            method="POST",
            path=f"/v1/{task.name}{suffix}",
            scope="extract",
            handler=partial(handler, task),
            operation=Operation(
                name=task.name + suffix.replace("/", "_"),
                tag=task.name,
                summary=route.summary,
                description=route.description,
                request=request,
                **operation,
            ),
        )

    streamed = {"errors": TASK_ERRORS, "examples": example, "more_types": line_types, "extra": stream_operation}
    batch = {"errors": _BATCH_ERRORS, "examples": {task.batch_model: task.batch_example}}
    return [
        endpoint("", _single, task.request_model, response=task.answer, errors=TASK_ERRORS, examples=example),
        endpoint("/stream", _stream, task.request_model, **streamed),
        endpoint("/batch", _batch, task.batch_model, response=task.batch_answer, **batch),
    ]


ABORT = Endpoint(
    method="POST",
    path="/v1/requests/{request_id}/abort",
    scope="extract",
    handler=_abort,
    operation=Operation(
        name="abort_request",
        tag="extract",
        summary="Abort the requests that have this id",
        description="End the caller's own requests that were sent with this id; they fail with 499. `aborted` is "
        "false if there are none.",
        response=AbortResponse,
        parameters=[path_parameter("request_id", "The id that was sent with the request.")],
    ),
)
