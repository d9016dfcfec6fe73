"""`/v1/documents`: the texts of a document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.documents.base import DocumentRecord
from gliner_bento.errors import InvalidField, UnsupportedMediaType
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import BINARY, Endpoint, Operation, json_response, query_parameter
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.media import is_json, media_type

_OFFICE = "application/vnd.openxmlformats-officedocument"
_NAMES = {
    "application/pdf": "document.pdf",
    f"{_OFFICE}.wordprocessingml.document": "document.docx",
    f"{_OFFICE}.spreadsheetml.sheet": "document.xlsx",
    "text/html": "document.html",
    "message/rfc822": "document.eml",
}
"""The name of a document without one, by its media type."""
_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class DocumentResponse:
    """The texts of a document, in order."""

    records: Annotated[list[DocumentRecord], Field(description="The texts, each with its place.")]
    not_read: Annotated[
        dict[str, str], Field(description="Why a part has no text here, such as a scanned page, by its name.")
    ]
    request_id: Annotated[str, Field(description="The request's id.")]


async def _read(gateway: Gateway, context: Context, request: Request) -> Response:
    kind = media_type(request.headers)
    if is_json(kind) or kind == "multipart/form-data":
        raise UnsupportedMediaType("send the document itself as the body (curl --data-binary @report.pdf)")
    name = request.query_params.get("name") or _NAMES.get(kind)
    if not name:
        raise InvalidField("name: is missing: the name of the document (?name=report.pdf)", param="name")
    gateway.documents.check(context.tenant, name)
    document = await gateway.documents.read(context.tenant, await request.body(), name, _charset(request))
    return json_response(DocumentResponse(document.records, document.not_read, context.id))


def _charset(request: Request) -> str:
    """The encoding of HTML that does not name its own."""
    named = _CHARSET.search(request.headers.get("content-type", ""))
    return named[1] if named else "utf-8"


def _operation(operation: dict[str, Any]) -> dict[str, Any]:
    return operation | {"requestBody": {"required": True, "content": BINARY}}


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/v1/documents",
        scope="extract",
        handler=_read,
        needs_model=False,
        uploads="max_body_bytes",
        operation=Operation(
            name="read_document",
            tag="extract",
            summary="The texts of a PDF, Word or Excel file, HTML page or mail",
            description="Get the pages, cells or other parts of a document as texts, to extract from or to redact. "
            "The body is the document. Its format is that of the name's suffix, or else of the Content-Type. Needs "
            "the extra `documents` on the server (else 501).",
            response=DocumentResponse,
            errors=(404, 413, 415, 422, 429, 499, 500, 501, 503, 504),
            parameters=[query_parameter("name", "Name of the document, such as `report.pdf`.")],
            extra=_operation,
        ),
    ),
]
