"""`/v1/models`: lists the served models; adds, loads, unloads and deletes them while the server runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField, NotReady
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import (
    BINARY,
    COMMON_ERRORS,
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
from gliner_bento.gateway.models import ServedModel
from gliner_bento.gateway.validation import from_model
from gliner_bento.model_types import UPLOADED, AddModelRequest, ListedModel, ListedModels, ModelAction

PATH = "/v1/models"


async def list_models(gateway: Gateway, context: Context, _: Request) -> Response:
    """The served models as OpenAI's API lists them."""
    await gateway.models.refresh()
    return json_response(ListedModels([await _listed(gateway, served) for served in gateway.models]))


async def _get(gateway: Gateway, context: Context, request: Request) -> Response:
    await gateway.models.refresh()
    return json_response(await _listed(gateway, await gateway.models.find(request.path_params["model"])))


async def _listed(gateway: Gateway, served: ServedModel) -> ListedModel:
    row = served.row
    try:
        info = await served.info()
    except NotReady:
        if not row.name:
            raise
        name, revision = row.name, None
    else:
        name, revision = info.model, info.fingerprint
    return ListedModel(
        id=name,
        model_name=name,
        revision=revision,
        created=served.created_s,
        state=row.state,
        reason=row.reason,
        default=served is gateway.models.default,
        pinned=row.pinned,
        bytes=row.bytes,
    )


async def _add(gateway: Gateway, context: Context, request: Request) -> Response:
    if is_json(media_type(request.headers)) or not gateway.options.max_model_bytes:
        added = await gateway.models.add(await json_body(request, AddModelRequest))
    else:
        added = await gateway.models.add(_request_in(request.query_params), archive_of(request))
    return json_response(await _listed(gateway, added), status=201)


def _request_in(query: Mapping[str, str]) -> AddModelRequest:
    """The fields that are sent with an archive. Raises `InvalidField`."""
    fields: dict[str, Any] = {**query}
    for field in fields.keys() & {"settings", "pinned", "load"}:
        try:
            fields[field] = json.loads(fields[field])
        except ValueError:
            raise InvalidField(f"{field}: is not JSON", param=field) from None
    if "source" in fields:
        raise InvalidField("source: must not be set if an archive is sent", param="source")
    try:
        return AddModelRequest.model_validate(fields | {"source": UPLOADED})
    except ValidationError as invalid:
        raise from_model(invalid, AddModelRequest) from None


async def _delete(gateway: Gateway, context: Context, request: Request) -> Response:
    await gateway.models.remove(request.path_params["model"])
    return Response(status_code=204)


async def _change(action: ModelAction, gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await _listed(gateway, await gateway.models.change(request.path_params["model"], action)))


_MEMBER = f"{PATH}/{{model}}"
_NAME = path_parameter("model", "The model's name, as GET /v1/models lists it.")
_EXAMPLE = {
    "id": "pii",
    "model_name": "pii",
    "revision": "5f0c8e1b7d3a9246",
    "object": "model",
    "created": 1795373849,
    "owned_by": "gliner-bento",
    "model_type": "token-classification",
    "state": "ready",
    "reason": None,
    "default": False,
    "pinned": True,
    "bytes": 745000000,
}
_EXAMPLES: dict[type[Any], Any] = {
    ListedModel: _EXAMPLE,
    AddModelRequest: {"name": "pii", "source": "gliner-pii", "settings": {"dtype": "bfloat16"}, "pinned": True},
}
_ERRORS = (404, 409, *COMMON_ERRORS, 501, 504)
_LISTED = EndpointGroup(tag="server")
_ADMIN = EndpointGroup(tag="models", scope="admin", errors=_ERRORS, parameters=[_NAME], examples=_EXAMPLES)
_ACTIONS: dict[ModelAction, tuple[str, str]] = {
    "load": (
        "Load a model",
        "Loads a model that was unloaded or has failed; others are evicted for it as the settings allow. Answers once "
        "it is ready; with 504 after request_timeout_s (loading continues); with 507 if the memory does not suffice.",
    ),
    "unload": (
        "Unload a model",
        "Waits for its running requests; further ones get 503. The model stays in the list of /v1/models. While the "
        "server is ready, its default model and the only model that serves are not unloaded (409).",
    ),
    "pin": ("Pin a model", "A pinned model is never evicted, and never unloaded because it is idle."),
    "unpin": ("Unpin a model", "The model may be evicted, or unloaded because it is idle, as the settings say."),
}
assert set(_ACTIONS) == {*get_args(ModelAction)}


def _add_operation(operation: dict[str, Any]) -> dict[str, Any]:
    operation["requestBody"]["content"] |= BINARY
    return success(201, "The model is served")(operation)


ENDPOINTS = [
    _LISTED.get(
        PATH,
        list_models,
        "list_models",
        "The served models as OpenAI's API lists them",
        "The models' names, for the field `model` of requests, and their states.",
        response=ListedModels,
    ),
    _LISTED.get(
        _MEMBER,
        _get,
        "retrieve_model",
        "One served model as OpenAI's API shows it",
        "Get the state of a model, why it failed, and whether it is the default.",
        response=ListedModel,
        parameters=[_NAME],
        errors=(404, *COMMON_ERRORS),
    ),
    _ADMIN.post(
        PATH,
        _add,
        "add_model",
        "Serve a further model",
        "From a folder below `model_root`, from the hub where the server allows it, or, if `max_model_bytes` allows "
        "uploads, from an archive: the body is then a `.zip` or `.tar.gz` of the checkpoint, with safetensors or ONNX "
        "weights, and the other fields are in the query. The model is served until it is deleted or the server ends. "
        "Answers as the route that loads a model; a model that cannot be loaded is not added.",
        uploads="max_model_bytes",
        request=AddModelRequest,
        response=ListedModel,
        errors=(400, 409, 413, 415, 422, 500, 501, 503, 504, 507),
        parameters=[
            query_parameter("name", "Name of the model, if its archive is the body."),
            query_parameter("settings", "The model's settings, a JSON object."),
            query_parameter("pinned", "Never evict the model.", kind="boolean"),
            query_parameter("load", "Load the model now; default: true.", kind="boolean"),
        ],
        extra=_add_operation,
    ),
    _ADMIN.delete(
        _MEMBER,
        _delete,
        "delete_model",
        "Delete a model",
        "Waits for its running requests; further ones get 404. Its files are kept.",
        extra=success(204, "The model was deleted"),
    ),
    *(
        _ADMIN.post(
            f"{_MEMBER}/{action}",
            partial(_change, action),
            f"{action}_model",
            summary,
            description,
            response=ListedModel,
            errors=(*_ERRORS, 507) if action == "load" else _ERRORS,
        )
        for action, (summary, description) in _ACTIONS.items()
    ),
]
