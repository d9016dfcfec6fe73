"""The published OpenAPI document: every route, every answer, from the types themselves.

BentoML's generated document shows unions by their first branch and knows none of our errors, hence this one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gliner_bento import __version__
from gliner_bento.errors import ERRORS_BY_CODE, ErrorBody
from gliner_bento.gateway.compat.gliner_serve import GLiNERServeRequest, GLiNERServeResponse
from gliner_bento.types import (
    AbortResponse,
    ExtractBatchRequest,
    ExtractBatchResponse,
    ExtractRequest,
    ExtractResponse,
    ModelCard,
)

_MODELS: list[type[BaseModel]] = [
    ExtractRequest,
    ExtractResponse,
    ExtractBatchRequest,
    ExtractBatchResponse,
    ModelCard,
    AbortResponse,
    GLiNERServeRequest,
    GLiNERServeResponse,
    ErrorBody,
]
_TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
_LABELS = ["person", "organization", "date", "location"]
_EXAMPLES: dict[type[BaseModel], Any] = {
    ExtractRequest: {"text": _TEXT, "labels": _LABELS, "relations": ["founded", "founded in", "headquartered in"]},
    ExtractBatchRequest: {"texts": [_TEXT, "Ada Lovelace lived in London."], "labels": _LABELS},
    GLiNERServeRequest: {"text": _TEXT, "labels": _LABELS},
}
_EXTRACT_ERRORS = (400, 404, 413, 415, 422, 429, 499, 500, 503, 504, 507)
_BATCH_ERRORS = (400, 413, 415, 422, 500, 503, 504)  # of the request as a whole; an item's error is in its result
_SERVE_ERRORS = tuple(status for status in _EXTRACT_ERRORS if status != 422)  # which it says as 400
_READ_ERRORS = (500, 503)


def openapi_document(route_prefix: str) -> str:
    """The document as JSON; `route_prefix` is where the gliner.serve routes live."""
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "gliner-bento",
                "version": __version__,
                "summary": "Zero-shot named entities and relations.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "."}],
            "tags": [
                {"name": "extract", "description": "Entities and relations in texts."},
                {"name": "server", "description": "What is served, and how it is."},
                {"name": "compat", "description": "Other servers' wire formats."},
            ],
            "paths": _paths(route_prefix),
            "components": {"schemas": _schemas()},
        }
    )


def _schemas() -> dict[str, Any]:
    _, definitions = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    return dict(definitions["$defs"])


def _paths(route_prefix: str) -> dict[str, Any]:
    request_id = {
        "name": "request_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string"},
        "description": "The id that was sent with the request.",
    }
    adapter_id = {"name": "adapter_id", "in": "query", "required": False, "schema": {"type": "string"}}
    return {
        "/v1/extract": {
            "post": _operation(
                "extract",
                "extract",
                "Entities and relations of one text",
                answer=ExtractResponse,
                request=ExtractRequest,
                errors=_EXTRACT_ERRORS,
            )
        },
        "/v1/extract/batch": {
            "post": _operation(
                "extract_batch",
                "extract",
                "One result or error per text",
                answer=ExtractBatchResponse,
                request=ExtractBatchRequest,
                errors=_BATCH_ERRORS,
            )
        },
        "/v1/requests/{request_id}/abort": {
            "post": _operation("abort", "extract", "Stop the requests that have this id", answer=AbortResponse)
            | {"parameters": [request_id]}
        },
        "/v1/model": {"get": _operation("model", "server", "What is served, and with which limits", answer=ModelCard)},
        route_prefix: {
            "post": _operation(
                "gliner_serve_predict",
                "compat",
                "gliner.serve's format",
                answer=GLiNERServeResponse,
                request=GLiNERServeRequest,
                errors=_SERVE_ERRORS,
            )
        },
        f"{route_prefix}/adapter-cache": {
            "get": _operation("gliner_serve_adapter_cache", "compat", "gliner.serve's adapter cache status")
            | {"parameters": [adapter_id]}
        },
        "/livez": _probe("livez", "The process is alive"),
        "/healthz": _probe("healthz", "The process is alive"),
        "/readyz": _probe("readyz", "The model has answered its warm-up request"),
        "/metrics": _probe("metrics", "Prometheus metrics"),
    }


def _operation(
    name: str,
    tag: str,
    summary: str,
    *,
    answer: type[BaseModel] | None = None,
    request: type[BaseModel] | None = None,
    errors: Sequence[int] = _READ_ERRORS,
) -> dict[str, Any]:
    schema = _reference(answer) if answer else {"type": "object"}
    operation: dict[str, Any] = {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
    }
    if request is not None:
        body = {"schema": _reference(request), "example": _EXAMPLES[request]}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    operation["responses"] |= {str(status): _error(status) for status in errors}
    return operation


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _error(status: int) -> dict[str, Any]:
    codes = sorted(code for code, error in ERRORS_BY_CODE.items() if error.status == status)
    content = {"application/json": {"schema": _reference(ErrorBody)}}
    return {"description": " or ".join(codes), "content": content}


def _probe(name: str, summary: str) -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    responses: dict[str, Any] = {"200": {"description": "OK", "content": text}}
    if name == "readyz":
        responses["503"] = _error(503)
    return {"get": {"operationId": name, "tags": ["server"], "summary": summary, "responses": responses}}
