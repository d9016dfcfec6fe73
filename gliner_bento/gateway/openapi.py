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
from gliner_bento.gateway.compat.gliner_serve import (
    GLiNERServeAdapterCache,
    GLiNERServeRequest,
    GLiNERServeResponse,
)
from gliner_bento.gateway.media import NDJSON
from gliner_bento.types import (
    AbortResponse,
    AdapterCard,
    AdapterList,
    AdapterOptions,
    ExtractBatchRequest,
    ExtractBatchResponse,
    ExtractRequest,
    ExtractResponse,
    ModelCard,
    PutAdapterRequest,
    StreamedEnd,
    StreamedEntity,
)

_MODELS: list[type[BaseModel]] = [
    ExtractRequest,
    ExtractResponse,
    StreamedEntity,
    StreamedEnd,
    ExtractBatchRequest,
    ExtractBatchResponse,
    ModelCard,
    AbortResponse,
    AdapterList,
    PutAdapterRequest,
    GLiNERServeRequest,
    GLiNERServeResponse,
    GLiNERServeAdapterCache,
    ErrorBody,
]
_TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
_LABELS = ["person", "organization", "date", "location"]
_ADAPTER = {
    "id": "tenant-a",
    "source": "upload",
    "rank": 8,
    "targets": ["encoder.layer.0.attention.self.query", "encoder.layer.0.attention.self.value"],
    "bytes": 310482,
    "tier": "device",
    "pinned": True,
    "uses": 17,
    "last_used": "2026-01-31T12:00:00.000Z",
}
_EXAMPLES: dict[type[BaseModel], Any] = {
    ExtractRequest: {"text": _TEXT, "labels": _LABELS, "relations": ["founded", "founded in", "headquartered in"]},
    ExtractBatchRequest: {"texts": [_TEXT, "Ada Lovelace lived in London."], "labels": _LABELS},
    GLiNERServeRequest: {"text": _TEXT, "labels": _LABELS},
    PutAdapterRequest: {"source": "tenant-a", "pinned": True},
    AdapterCard: _ADAPTER,
    AdapterList: {"adapters": [_ADAPTER]},
}
_ARCHIVES = ("application/zip", "application/gzip", "application/octet-stream")
_EXTRACT_ERRORS = (400, 404, 413, 415, 422, 429, 499, 500, 503, 504, 507)
_BATCH_ERRORS = (400, 413, 415, 422, 500, 503, 504)  # of the request as a whole; an item's error is in its result
_SERVE_ERRORS = tuple(status for status in _EXTRACT_ERRORS if status != 422)  # which it says as 400
_READ_ERRORS = (500, 503)
_ADAPTER_ERRORS = (404, 422, 500, 503)
_DELETE_ERRORS = (404, 409, 422, 500, 503, 504)
_PUT_ERRORS = (400, 404, 409, 413, 415, 422, 500, 503, 504, 507)


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
                {"name": "adapters", "description": "LoRA adapters: one model, answering for many."},
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
        "/v1/extract/stream": {"post": _stream_operation()},
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
            | {"parameters": [_path_parameter("request_id", "The id that was sent with the request.")]}
        },
        "/v1/adapters": {
            "get": _operation("adapters", "adapters", "Every adapter", answer=AdapterList, errors=(404, *_READ_ERRORS))
        },
        "/v1/adapters/{adapter_id}": _adapter_operations(),
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
            "get": _operation(
                "gliner_serve_adapter_cache",
                "compat",
                "gliner.serve's adapter cache status",
                answer=GLiNERServeAdapterCache,
                errors=(400, *_READ_ERRORS),
            )
            | {"parameters": [{"name": "adapter_id", "in": "query", "schema": {"type": "string"}}]}
        },
        "/livez": _probe("livez", "The process is alive"),
        "/healthz": _probe("healthz", "The process is alive"),
        "/readyz": _probe("readyz", "The model has answered its warm-up request"),
        "/metrics": _probe("metrics", "Prometheus metrics"),
    }


def _stream_operation() -> dict[str, Any]:
    stream = _operation(
        "extract_stream",
        "extract",
        "Entities of one text while it is being read, in lines of JSON",
        request=ExtractRequest,
        errors=_EXTRACT_ERRORS,
    )
    stream["description"] = (
        "A line for each entity, in order of position; the last line holds the relations and the usage. What goes "
        "wrong after the first line is the last line, an error body."
    )
    lines = {"oneOf": [_reference(model) for model in (StreamedEntity, StreamedEnd, ErrorBody)]}
    stream["responses"]["200"]["content"] = {NDJSON: {"schema": lines}}
    return stream


def _adapter_operations() -> dict[str, Any]:
    read = _operation("adapter", "adapters", "One adapter", answer=AdapterCard, errors=_ADAPTER_ERRORS)
    put = _operation(
        "put_adapter",
        "adapters",
        "Serve an adapter from now on, or change how it is kept",
        answer=AdapterCard,
        request=PutAdapterRequest,
        errors=_PUT_ERRORS,
    )
    put["description"] = (
        "The body is the adapter as PEFT saves it, in a `.zip` or `.tar.gz`; or JSON that says where the server finds "
        "it; or empty, to pin or load one that is there. The options are fields of the JSON, or in the query."
    )
    put["parameters"] = [
        {"name": name, "in": "query", "schema": {"type": "boolean"}, "description": field.description}
        for name, field in AdapterOptions.model_fields.items()
    ]
    archive = {"schema": {"type": "string", "format": "binary"}}
    put["requestBody"]["content"] |= dict.fromkeys(_ARCHIVES, archive)
    put["requestBody"]["required"] = False
    put["responses"] = {
        "200": put["responses"]["200"] | {"description": "It was there already"},
        "201": put["responses"]["200"] | {"description": "It is new"},
    } | {status: answer for status, answer in put["responses"].items() if status != "200"}
    delete = _operation("delete_adapter", "adapters", "Serve an adapter no longer", errors=_DELETE_ERRORS)
    del delete["responses"]["200"]
    delete["responses"]["204"] = {"description": "Nothing runs with it any more, and it is gone"}
    parameters = [_path_parameter("adapter_id", "Letters, digits and _.- unless the server says otherwise.")]
    return {"parameters": parameters, "get": read, "put": put, "delete": delete}


def _path_parameter(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": description}


def _operation(
    name: str,
    tag: str,
    summary: str,
    *,
    answer: type[BaseModel] | None = None,
    request: type[BaseModel] | None = None,
    errors: Sequence[int] = _READ_ERRORS,
) -> dict[str, Any]:
    content = {"schema": _reference(answer) if answer else {"type": "object"}}
    if answer in _EXAMPLES:
        content["example"] = _EXAMPLES[answer]
    operation: dict[str, Any] = {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": {"application/json": content}}},
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
