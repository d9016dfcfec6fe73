"""The published OpenAPI document, generated from the endpoints and the types that they name.

It replaces BentoML's document, which shows only the first branch of a union, and no errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from gliner_bento import __version__
from gliner_bento.errors import ErrorBody, ModelNotFound
from gliner_bento.gateway.endpoint import Endpoint, Operation
from gliner_bento.gateway.media import JSON

_TAGS = {
    "extract": "Entities and relations in texts.",
    "redact": "Personal data replaced, and restored.",
    "adapters": "LoRA adapters: one base model, many tenants.",
    "models": "Models that come and go while the server runs.",
    "server": "What is served, and its state.",
    "compat": "Wire formats of other servers.",
}


_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
}


def openapi_document(endpoints: Iterable[Endpoint], *, needs_key: bool = False) -> str:
    """The document as JSON. needs_key: whether the server has API keys."""
    documented = [(endpoint, endpoint.operation) for endpoint in endpoints if endpoint.operation]
    paths: dict[str, dict[str, Any]] = {}
    for endpoint, operation in documented:
        methods = paths.setdefault(endpoint.path, {})
        methods[endpoint.method.lower()] = _documented(endpoint, operation, needs_key=needs_key)
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
            "tags": [{"name": name, "description": description} for name, description in _TAGS.items()],
            "paths": paths,
            "components": {
                "schemas": _schemas(documented),
                **({"securitySchemes": _SECURITY_SCHEMES} if needs_key else {}),
            },
        }
    )


def _documented(endpoint: Endpoint, operation: Operation, *, needs_key: bool) -> dict[str, Any]:
    """The operation object. needs_key: whether it names the scope that an API key needs."""
    document = _operation_object(endpoint, operation)
    if needs_key and endpoint.scope:
        document["security"] = [{scheme: [endpoint.scope]} for scheme in _SECURITY_SCHEMES]
        document["responses"] |= {str(status): _error(status, endpoint) for status in (401, 403)}
    return document


def _operation_object(endpoint: Endpoint, operation: Operation) -> dict[str, Any]:
    content = {"schema": _reference(operation.response) if operation.response else {"type": "object"}}
    if operation.response and operation.response in operation.examples:
        content["example"] = operation.examples[operation.response]
    document: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "responses": {"200": {"description": "OK", "content": {JSON: content}}},
    }
    if operation.parameters:
        document["parameters"] = list(operation.parameters)
    if operation.request is not None:
        body = {"schema": _reference(operation.request), "example": operation.examples[operation.request]}
        document["requestBody"] = {"required": True, "content": {JSON: body}}
    # Any route but those of a server's own state may be asked about a model that there is not (?model=, /models/NAME).
    errors = {*operation.errors, *([endpoint.statuses[ModelNotFound.code]] if endpoint.scope else [])}
    document["responses"] |= {str(status): _error(status, endpoint) for status in sorted(errors)}
    return operation.extra(document) if operation.extra else document


def _schemas(documented: Iterable[tuple[Endpoint, Operation]]) -> dict[str, Any]:
    types: dict[type[Any], None] = {ErrorBody: None}
    for endpoint, operation in documented:
        kinds = (operation.request, operation.response, endpoint.error, *operation.more_types)
        types |= dict.fromkeys(kind for kind in kinds if kind)
    return _definitions(tuple(types))


@cache
def _definitions(types: tuple[type[Any], ...]) -> dict[str, Any]:
    """JSON schemas by name. Cached: they take most of the CPU time of a document, and are the same for all apps."""
    _, definitions = TypeAdapter.json_schemas(
        [(kind.__name__, "validation", TypeAdapter(kind)) for kind in types],
        ref_template="#/components/schemas/{model}",
        schema_generator=_SchemaGenerator,
    )
    return dict(definitions["$defs"])


class _SchemaGenerator(GenerateJsonSchema):
    """Responses are dataclasses, and always have all fields: fields with a default are required too."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def dataclass_field_schema(self, schema: Any) -> dict[str, Any]:
        document = super().dataclass_field_schema(schema)
        document.pop("default", None)
        return document


def _reference(kind: type[Any]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _error(status: int, endpoint: Endpoint) -> dict[str, Any]:
    codes = sorted(code for code, its_status in endpoint.statuses.items() if its_status == status)
    return {"description": " or ".join(codes), "content": {JSON: {"schema": _reference(endpoint.error)}}}
