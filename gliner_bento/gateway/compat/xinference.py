"""Xinference's (4.1.0) route to abort a request: `POST /v1/models/{model_uid}/requests/{request_id}/abort`.

`model_uid` is the name of a served model; a server with one model accepts any. `request_id` is the field `request_id`
or the header `X-Request-ID` of the request to abort. `GET /v1/models` is this server's own route.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ModelNotFound
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response, path_parameter
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import DetailError
from gliner_bento.gateway.wire_format import POST_ERRORS, WireFormat

_DEFAULT_BLOCK_S = 30


class XinferenceAbortRequest(BaseModel):
    """The body of `POST .../abort`. Old clients send no body."""

    model_config = ConfigDict(hide_input_in_errors=True)

    block_duration: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = Field(
        default=_DEFAULT_BLOCK_S, description="Seconds in which further requests with this id are refused."
    )


@dataclass(frozen=True, slots=True)
class XinferenceAbort:
    """The answer of an abort. msg: `NOT_FOUND` if the caller has no request with this id; `NO_OP` if no such model."""

    msg: Literal["DONE", "NOT_FOUND", "NO_OP"]


@dataclass(frozen=True, slots=True)
class XinferenceAuth:
    """Whether the server has API keys; if not, Xinference's client sends none."""

    auth: bool


async def _abort(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, XinferenceAbortRequest)
    try:
        await gateway.models.find(gateway.if_several(request.path_params["model_uid"]))
    except ModelNotFound:
        return json_response(XinferenceAbort("NO_OP"))
    answer = await gateway.abort(context, request.path_params["request_id"], block_s=body.block_duration)
    return json_response(XinferenceAbort("DONE" if answer.aborted else "NOT_FOUND"))


async def _auth(gateway: Gateway, context: Context, _: Request) -> Response:
    return json_response(XinferenceAuth(bool(gateway.options.api_keys)))


_FORMAT = WireFormat(
    error=DetailError,
    statuses={**STATUSES, "invalid_field": 400},
    examples={XinferenceAbortRequest: {"block_duration": _DEFAULT_BLOCK_S}},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The abort route, and the route that Xinference's client calls first."""
    auth = _FORMAT.get(
        "/v1/cluster/auth",
        _auth,
        "xinference_auth",
        "Whether Xinference's client should send its API key",
        scope=None,
        response=XinferenceAuth,
        errors=(500,),
    )
    abort = _FORMAT.post(
        "/v1/models/{model_uid}/requests/{request_id}/abort",
        _abort,
        "xinference_abort",
        "Xinference's abort",
        request=XinferenceAbortRequest,
        response=XinferenceAbort,
        errors=POST_ERRORS,
        parameters=[
            path_parameter("model_uid", "A model's name; any name if the server has one model."),
            path_parameter("request_id", "Id of the request to abort."),
        ],
    )
    return [auth, abort]
