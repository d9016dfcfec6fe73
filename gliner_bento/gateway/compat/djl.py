"""DJL Serving's inference and management API (0.36). Inference has the request body and the answer of `/v1/extract`.

A model's name is the name that it is served under, or else the last part of its folder's path or hub id. Versions in
URLs are ignored. Registering takes `url` (see `source` of `POST /v1/models`) and `model_name`. Scaling is not supported
(501), nor are tensors (`tensor/ndlist`, 415): the model reads text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, InvalidField, NotReady, NotSupported
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import COMMON_ERRORS, Endpoint, json_response, path_parameter, query_parameter
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.models import ServedModel
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.v1.extract import answer_one
from gliner_bento.gateway.wire_format import WireFormat, extract_errors
from gliner_bento.model_types import AddModelRequest, short_name
from gliner_bento.tasks.extraction import LABELS, TEXT, ExtractResponse
from gliner_bento.tasks.requests import ExtractRequest

_ERROR_TYPES = {
    400: "BadRequestException",
    404: "ModelNotFoundException",
    405: "MethodNotAllowedException",
    501: "UnsupportedOperationException",
    503: "WlmException",
    507: "WlmOutOfMemoryException",
}


@dataclass(frozen=True, slots=True)
class DjlError:
    """DJL Serving's error body."""

    code: int
    type: str
    message: str

    @classmethod
    def of(cls, detail: ErrorDetail, status: int) -> DjlError:
        """The body of an error."""
        kind = "TranslateException" if detail.code == "invalid_field" else _ERROR_TYPES.get(status, "ServerException")
        return cls(status, kind, detail.message)


@dataclass(frozen=True, slots=True)
class DjlHealth:
    """The health of a model."""

    status: Literal["Healthy", "PENDING", "FAILED"]


@dataclass(frozen=True, slots=True)
class DjlListedModel:
    """A model in the list."""

    modelName: str
    modelUrl: str
    status: Literal["READY", "PENDING", "FAILED"]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class DjlModels:
    """The answer of `GET /models`."""

    models: list[DjlListedModel]


@dataclass(frozen=True, slots=True)
class DjlWorker:
    """A replica. id: its number in the list, from 1."""

    id: int
    status: Literal["READY", "UNLOADED"]


@dataclass(frozen=True, slots=True)
class DjlWorkerGroup:
    """The replicas, and the device of their model."""

    device: dict[str, Any]
    minWorkers: int
    maxWorkers: int
    workers: list[DjlWorker]


@dataclass(frozen=True, slots=True)
class DjlModel:
    """A model with its state."""

    modelName: str
    modelUrl: str
    batchSize: int
    requestInQueue: Annotated[int, Field(description="Number of waiting texts.")]
    status: Literal["Healthy", "Unhealthy"]
    workerGroups: list[DjlWorkerGroup]
    version: str | None = None
    loadedAtStartup: bool = True


@dataclass(frozen=True, slots=True)
class DjlWorkflow:
    """A model in `GET /models/{model}`, where DJL Serving lists workflows."""

    workflowName: str
    models: list[DjlModel]


class DjlDescription(RootModel[list[DjlWorkflow]]):
    """The answer of `GET /models/{model}`: a list of one workflow."""


@dataclass(frozen=True, slots=True)
class DjlStatus:
    """The answer of registering and unregistering a model."""

    status: str


class DjlPing(RootModel[dict[str, DjlHealth]]):
    """The answer of `GET /ping`, by name of the model."""


async def _name(served: ServedModel) -> str:
    return short_name(served.name or (await served.info()).model)


async def _state(served: ServedModel) -> Literal["READY", "PENDING", "FAILED"]:
    if served.row.state == "failed":
        return "FAILED"
    return "READY" if await served.ready() else "PENDING"


async def _predictions(gateway: Gateway, context: Context, request: Request) -> Response:
    return await _infer(gateway, context, request, request.path_params["model"])


async def _invocations(gateway: Gateway, context: Context, request: Request) -> Response:
    return await _infer(gateway, context, request, request.query_params.get("model_name"))


async def _infer(gateway: Gateway, context: Context, request: Request, name: str | None) -> Response:
    if not await request.body():
        raise InvalidField("the body must be that of /v1/extract: text, labels, ...")
    context.choose_model(name)
    return await answer_one(gateway, context, vars(await json_body(request, ExtractRequest)))


async def _ping(gateway: Gateway, context: Context, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("the model is not ready")
    if gateway.options.api_keys:  # a probe needs no key, but the names of the models do
        return json_response({})
    states = {await _name(served): await _state(served) for served in gateway.models}
    return json_response({name: DjlHealth("Healthy" if state == "READY" else state) for name, state in states.items()})


async def _models(gateway: Gateway, context: Context, _: Request) -> Response:
    return json_response(DjlModels([await _listed(served) for served in gateway.models]))


async def _listed(served: ServedModel) -> DjlListedModel:
    name = await _name(served)
    url = name if served.name else (await served.info()).model
    return DjlListedModel(name, url, await _state(served))


async def _describe(gateway: Gateway, context: Context, request: Request) -> Response:
    served = await gateway.models.find(request.path_params["model"])
    name, info = await _name(served), await served.info()
    replicas = (await served.replicas()).replicas
    workers = [
        DjlWorker(number, "READY" if replica.state == "ready" else "UNLOADED")
        for number, replica in enumerate(replicas, start=1)
    ]
    kind, _, index = info.device.partition(":")
    on_gpu = kind == "cuda"
    device = {"deviceType": "gpu" if on_gpu else "cpu", "deviceId": int(index or 0) if on_gpu else -1}
    model = DjlModel(
        modelName=name,
        modelUrl=info.model,
        batchSize=gateway.options.max_batch_size,
        requestInQueue=sum(replica.waiting_items for replica in replicas),
        status="Healthy" if await served.ready() else "Unhealthy",
        workerGroups=[DjlWorkerGroup(device, minWorkers=len(workers), maxWorkers=len(workers), workers=workers)],
    )
    return json_response([DjlWorkflow(name, [model])])


async def _register(gateway: Gateway, context: Context, request: Request) -> Response:
    query = request.query_params
    if not (url := query.get("url")):
        raise InvalidField("url: Field required", param="url")
    name = query.get("model_name") or short_name(url.rstrip("/"))
    await gateway.models.add(AddModelRequest(name=name, source=url))
    return json_response(DjlStatus(f'Model "{name}" registered.'))


async def _unregister(gateway: Gateway, context: Context, request: Request) -> Response:
    name = request.path_params["model"]
    await gateway.models.remove(name)
    return json_response(DjlStatus(f'Model or workflow "{name}" unregistered'))


async def _scale(*_: object) -> Response:
    raise NotSupported("min_worker and max_worker cannot change while the server runs; see its setting num_instances")


_FORMAT = WireFormat(
    error=DjlError,
    statuses={**STATUSES, "invalid_field": 400, "queue_full": 503, "rate_limited": 503},
    examples={ExtractRequest: {"text": TEXT, "labels": LABELS}},
)
_REGISTER_ERRORS = (400, 409, *COMMON_ERRORS, 501, 507)
_REMOVE_ERRORS = (404, 409, *COMMON_ERRORS, 501)
_MODEL = path_parameter("model", "A model's name, as in /models.")
_URL = query_parameter("url", "A folder below the server's `model_root`, or `hub:owner/name`.", required=True)
_NEW_NAME = query_parameter("model_name", "The model's name in requests; default: the last part of the url.")
_VERSION = path_parameter("version", "Ignored: a model has one version.")
_MODEL_NAME = query_parameter("model_name", "A model's name, as in /models; default: the first.")


def _inference(path: str, handler: Any, name: str, *parameters: dict[str, Any]) -> Endpoint:
    return _FORMAT.post(
        path,
        handler,
        name,
        "DJL Serving's inference, with the body of /v1/extract",
        request=ExtractRequest,
        response=ExtractResponse,
        errors=extract_errors(without=(429,)),
        parameters=parameters,
    )


def _management(
    method: str, path: str, handler: Any, name: str, *parameters: dict[str, Any], errors: Sequence[int], **more: Any
) -> Endpoint:
    summary = "DJL Serving's management"
    return _FORMAT.endpoint(
        method, path, handler, name, summary, scope="admin", errors=errors, parameters=parameters, **more
    )


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The routes of inference and management."""
    register = _management(
        "POST", "/models", _register, "djl_register", _URL, _NEW_NAME, errors=_REGISTER_ERRORS, response=DjlStatus
    )
    unregister = _management(
        "DELETE", "/models/{model}", _unregister, "djl_unregister", _MODEL, errors=_REMOVE_ERRORS, response=DjlStatus
    )
    return [
        _FORMAT.get("/ping", _ping, "djl_ping", "DJL Serving's probe", scope=None, response=DjlPing, errors=(503,)),
        _inference("/predictions/{model}", _predictions, "djl_predictions", _MODEL),
        _inference("/predictions/{model}/{version}", _predictions, "djl_predictions_version", _MODEL, _VERSION),
        _inference("/invocations", _invocations, "djl_invocations", _MODEL_NAME),
        _FORMAT.get("/models", _models, "djl_models", "DJL Serving's list of models", response=DjlModels),
        _FORMAT.get(
            "/models/{model}",
            _describe,
            "djl_model",
            "DJL Serving's description of a model",
            errors=(404, *COMMON_ERRORS),
            response=DjlDescription,
            parameters=[_MODEL],
        ),
        register,
        _management("PUT", "/models/{model}", _scale, "djl_scale", _MODEL, errors=(501,)),
        unregister,
    ]
