"""`/v1/adapters`: installs, lists and deletes adapters."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.adapter_types import AdapterInfo, AdapterList, AdapterOptions, PutAdapterRequest
from gliner_bento.errors import InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import (
    BINARY,
    COMMON_ERRORS,
    MODEL,
    EndpointGroup,
    archive_of,
    json_response,
    path_parameter,
    query_parameter,
    success,
)
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.media import is_json, media_type
from gliner_bento.gateway.validation import from_model

PATH = "/v1/adapters"
_EXAMPLE = {
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
_EXAMPLES: dict[type[Any], Any] = {
    AdapterInfo: _EXAMPLE,
    AdapterList: {"adapters": [_EXAMPLE]},
    PutAdapterRequest: {"source": "tenant-a", "pinned": True},
}


async def _list(gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await (await gateway.adapters(context)).list())


async def _get(gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await (await gateway.adapters(context)).get(request.path_params["adapter_id"]))


async def _delete(gateway: Gateway, context: Context, request: Request) -> Response:
    await (await gateway.adapters(context)).remove(request.path_params["adapter_id"])
    return Response(status_code=204)


async def _put(gateway: Gateway, context: Context, request: Request) -> Response:
    adapter_id, adapters = request.path_params["adapter_id"], await gateway.adapters(context)
    options = _query_options(request).model_dump(exclude_unset=True)
    kind = media_type(request.headers)
    if is_json(kind):
        body = await json_body(request, PutAdapterRequest)
        if in_both := sorted(options.keys() & body.model_fields_set):
            raise InvalidField(f"{in_both[0]}: is in the query and in the body", param=in_both[0])
        info, created = await adapters.put(adapter_id, body.model_copy(update=options))
    else:
        info, created = await adapters.put(adapter_id, PutAdapterRequest(**options), archive_of(request))
    return json_response(info, status=201 if created else 200)


def _query_options(request: Request) -> AdapterOptions:
    try:
        options = {name: value for name, value in request.query_params.items() if name != MODEL["name"]}
        return AdapterOptions.model_validate_strings(options)
    except ValidationError as invalid:
        raise from_model(invalid, AdapterOptions) from None


def _put_operation(operation: dict[str, Any]) -> dict[str, Any]:
    operation["requestBody"]["content"] |= BINARY
    operation["requestBody"]["required"] = False
    responses = operation["responses"]
    response = responses.pop("200")
    operation["responses"] = {
        "200": response | {"description": "The adapter was already installed"},
        "201": response | {"description": "The adapter is new"},
        **responses,
    }
    return operation


_MEMBER = f"{PATH}/{{adapter_id}}"
_ID = path_parameter("adapter_id", "Letters, digits and _.- unless the server's adapter_id_pattern says otherwise.")
_OPTIONS = [
    query_parameter(name, option.description or "", kind="boolean")
    for name, option in AdapterOptions.model_fields.items()
]


_GROUP = EndpointGroup(tag="adapters", scope="adapters", examples=_EXAMPLES)

ENDPOINTS = [
    _GROUP.get(
        PATH,
        _list,
        "list_adapters",
        "All adapters",
        "The LoRA adapters that requests can name in adapter_id, and where each is kept.",
        errors=(404, *COMMON_ERRORS),
        response=AdapterList,
        parameters=[MODEL],
    ),
    _GROUP.get(
        _MEMBER,
        _get,
        "get_adapter",
        "One adapter",
        "Where the adapter is kept, its size and targets, and how often it was used.",
        errors=(404, 422, *COMMON_ERRORS),
        response=AdapterInfo,
        parameters=[_ID, MODEL],
    ),
    _GROUP.put(
        _MEMBER,
        _put,
        "put_adapter",
        "Install an adapter, or pin, unpin or load an installed one",
        "The body is the adapter as PEFT saves it, in a `.zip` or `.tar.gz`; or JSON that names a source; or "
        "empty, to pin, unpin or load an installed one. The options are fields of the JSON, or in the query.",
        errors=(400, 404, 409, 413, 415, 422, 500, 503, 504, 507),
        request=PutAdapterRequest,
        response=AdapterInfo,
        parameters=[_ID, MODEL, *_OPTIONS],
        extra=_put_operation,
        uploads="max_adapter_bytes",
    ),
    _GROUP.delete(
        _MEMBER,
        _delete,
        "delete_adapter",
        "Delete an adapter",
        "Requests that name it fail with 404 from now on; running ones are finished first.",
        errors=(404, 409, 422, 500, 503, 504),
        parameters=[_ID, MODEL],
        extra=success(204, "The adapter was deleted"),
    ),
]
