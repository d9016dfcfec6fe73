"""The routes of redaction: `/v1/redact`, `/v1/redact/batch` and `/v1/restore`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import fields

from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import GLiNERBentoError, InvalidField
from gliner_bento.gateway import redaction
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import EndpointGroup, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.v1.extract import EXTRACT_ERRORS
from gliner_bento.privacy.json_texts import Reading
from gliner_bento.privacy.lists import Listed
from gliner_bento.redact_types import (
    RedactBatchRequest,
    RedactBatchResponse,
    RedactBatchResult,
    RedactRequest,
    RedactResponse,
    RestoreRequest,
    RestoreResponse,
)
from gliner_bento.tasks import extraction
from gliner_bento.tasks.lists import lists_of

_RESTORE_ERRORS = (400, 413, 415, 422, 429, 500, 507)


def options_of(body: RedactRequest | RedactBatchRequest) -> redaction.RedactionOptions:
    """What a request asks for."""
    return redaction.RedactionOptions(
        labels=body.labels,
        recognizers=body.recognizers,
        phone_regions=body.phone_regions,
        threshold=body.threshold,
        adapter_id=body.adapter_id,
        style=body.style,
        lists=lists_of(body.allow_list, body.deny_list),
        conversation=body.conversation,
    )


async def _redact(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, RedactRequest)
    context.choose_model(body.model)
    texts = _texts(body.text, body.texts)
    result, found = await redaction.redact(
        gateway,
        context,
        texts,
        options_of(body),
        mapping=body.mapping,
        request=_request(body),
        single=body.text is not None,
    )
    about = {field.name: getattr(result, field.name) for field in fields(result)}
    return json_response(RedactResponse(**about, model=found.model, request_id=context.id))


async def _batch(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, RedactBatchRequest)
    context.choose_model(body.model)
    options, mappings = options_of(body), await redaction.mappings_of(gateway, context)
    texts = await redaction.read(gateway, context, body.texts)
    read = [text.text for text in texts]
    found, listed = await redaction.find_each(gateway, context, read, options, _request(body))

    def result_of(text: Reading, outcome: extraction.BatchResult, of_text: Listed) -> RedactBatchResult:
        if outcome.result is None:
            return RedactBatchResult(error=outcome.error)
        try:
            return RedactBatchResult(redaction.redact_one(text, outcome.result, of_text, options, mappings))
        except GLiNERBentoError as error:
            return RedactBatchResult(error=error.detail(context.id))

    results = await asyncio.to_thread(lambda: [*map(result_of, texts, found.results, listed)])
    return json_response(RedactBatchResponse(results, found.model, context.id))


async def _restore(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, RestoreRequest)
    context.id = body.request_id or context.id
    texts = _texts(body.text, body.texts)
    if body.partial and body.text is None:
        raise InvalidField("partial: only with text", param="partial")
    gateway.check_texts(texts, gateway.largest_limits)
    mapping = (await redaction.mappings_of(gateway, context)).open(body.mapping) if body.mapping is not None else {}
    form = "text" if body.partial and body.format == "auto" else body.format
    restored, held, restorer = await asyncio.to_thread(
        redaction.restore, texts, mapping, form, gateway.options, partial=body.partial
    )
    counts = restorer.counts.shown()
    return json_response(RestoreResponse(texts=restored, held=held, **counts, request_id=context.id))


def _texts(text: str | None, texts: Sequence[str] | None) -> Sequence[str]:
    if text is not None and texts is None:
        return [text]
    if text is None and texts is not None:
        return texts
    raise InvalidField("text: send either text or texts", param="text")


def _request(body: RedactRequest | RedactBatchRequest) -> extraction.Request:
    """The request for an extraction, without its texts."""
    return extraction.Request([], body.request_id, timeout_ms=body.timeout_ms, priority=body.priority, all_found=True)


_TEXT = "Dear Ada Lovelace, write to ada@example.com."
_GROUP = EndpointGroup(tag="redact", errors=EXTRACT_ERRORS)

ENDPOINTS = [
    _GROUP.post(
        "/v1/redact",
        _redact,
        "redact",
        "Replace personal data in the texts of a conversation",
        "Find values with the model and recognizers, and replace them in all texts: by placeholders "
        "that /v1/restore turns into the originals again, or by hashes, masks or nothing. If one text fails, the "
        "request fails. The server keeps nothing: the answer has the originals as a sealed `mapping`.",
        request=RedactRequest,
        response=RedactResponse,
        examples={RedactRequest: {"text": _TEXT}},
    ),
    _GROUP.post(
        "/v1/redact/batch",
        _batch,
        "redact_batch",
        "Replace personal data in independent texts",
        "As /v1/redact, but each text has its own placeholders and mapping: results[i] is the result "
        "of the i-th text, or its error, without any text.",
        request=RedactBatchRequest,
        response=RedactBatchResponse,
        examples={RedactBatchRequest: {"texts": [_TEXT, "Ada Lovelace lived in London."]}},
    ),
    _GROUP.post(
        "/v1/restore",
        _restore,
        "restore",
        "Put the originals back into a text",
        "Restore the placeholders of a mapping from /v1/redact, also as language models change them: "
        "[Person 1], <PERSON_1>, PERSON_1. What is ambiguous or unknown stays, and is reported. With `partial`, "
        "for each chunk of a stream.",
        request=RestoreRequest,
        response=RestoreResponse,
        errors=_RESTORE_ERRORS,
        examples={RestoreRequest: {"text": "Dear [PERSON_1],"}},
        needs_model=False,
    ),
]
