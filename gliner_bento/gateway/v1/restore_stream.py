"""`/v1/restore/stream`: restores the chunks of a stream while they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorBody
from gliner_bento.gateway import redaction
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, Operation
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_lines import LinesReader, LinesResponse, lines_content
from gliner_bento.privacy.redact import CharBudget
from gliner_bento.privacy.restoring import Restorer
from gliner_bento.redact_types import RestoredChunk, RestoredEnd, RestoreStreamChunk, RestoreStreamRequest


async def _restore_stream(gateway: Gateway, context: Context, request: Request) -> Response:
    """An error in the first line is the response; a later error is the last line."""
    reader = LinesReader(request)
    first = await reader.next(RestoreStreamRequest) or RestoreStreamRequest()
    context.id = first.request_id or context.id
    gateway.check_text(first.text)
    mapping = {}
    if first.mapping is not None:
        mapping = (await redaction.mappings_of(gateway, context)).open(first.mapping)
    restorer = await asyncio.to_thread(Restorer, mapping, CharBudget(gateway.options.max_body_bytes))
    return LinesResponse(context, (), _restored(gateway, context, reader, first, restorer))


async def _restored(
    gateway: Gateway, context: Context, reader: LinesReader, first: RestoreStreamRequest, restorer: Restorer
) -> AsyncGenerator[Sequence[Any], None]:
    held, chunk = "", first.text
    while True:
        text, held = await asyncio.to_thread(restorer.restore_chunk, held + chunk, first.format)
        if text:
            yield [RestoredChunk(text)]
        line = await reader.next(RestoreStreamChunk)
        if line is None:
            break
        chunk = line.text
        gateway.check_text(chunk)
    if held:
        yield [RestoredChunk(await asyncio.to_thread(restorer.restore, held, first.format))]
    yield [RestoredEnd(**restorer.counts.shown(), request_id=context.id)]


def _operation(operation: dict[str, Any]) -> dict[str, Any]:
    operation["requestBody"]["content"] |= lines_content(RestoreStreamRequest, RestoreStreamChunk)
    operation["responses"]["200"]["content"] = lines_content(RestoredChunk, RestoredEnd, ErrorBody)
    return operation


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/v1/restore/stream",
        scope="extract",
        handler=_restore_stream,
        needs_model=False,
        reads_lines=True,
        operation=Operation(
            name="restore_stream",
            tag="redact",
            summary="Put the originals back into a stream, in lines of JSON",
            description="As /v1/restore, for a stream: each line of the body has a chunk, and is answered while "
            "further lines arrive. Text that may be the beginning of a placeholder waits for the next chunk. The last "
            "line of the answer has the counts, or an error.",
            request=RestoreStreamRequest,
            errors=(400, 413, 415, 422, 429, 499, 500, 507),
            examples={RestoreStreamRequest: {"text": "Dear [PERSON_1],"}},
            more_types=[RestoreStreamChunk, RestoredChunk, RestoredEnd],
            extra=_operation,
        ),
    ),
]
