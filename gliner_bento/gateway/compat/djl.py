"""DJL Serving's inference and management API (0.36): the body and the answer are those of `/v1/extract`.

The model's name is the last part of its path or hub id; any version of it is the one that is served. Registering,
scaling and unregistering answer 501: a server has one model. Tensors (`tensor/ndlist`) answer 415: the model reads
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, InvalidField, NotReady, NotSupported, RouteNotFound
from gliner_bento.gateway.endpoint import READ_ERRORS, Endpoint, Operation, json_response, path_parameter
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.v1.extract import LABELS, TEXT
from gliner_bento.types import ExtractRequest, ExtractResponse

_TYPES = {
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
        kind = "TranslateException" if detail.code == "invalid_field" else _TYPES.get(status, "ServerException")
        return cls(status, kind, detail.message)


@dataclass(frozen=True, slots=True)
class DjlHealth:
    """The health of a model."""

    status: Literal["Healthy"] = "Healthy"


@dataclass(frozen=True, slots=True)
class DjlListedModel:
    """A model in the list."""

    modelName: str
    modelUrl: str
    status: Literal["READY", "PENDING"]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class DjlModels:
    """The answer of `GET /models`."""

    models: list[DjlListedModel]


@dataclass(frozen=True, slots=True)
class DjlWorker:
    """A replica. id: its place in the list."""

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
    requestInQueue: Annotated[int, Field(description="Texts that wait.")]
    status: Literal["Healthy", "Unhealthy"]
    workerGroups: list[DjlWorkerGroup]
    version: str | None = None
    loadedAtStartup: bool = True


@dataclass(frozen=True, slots=True)
class DjlWorkflow:
    """An item of the answer of `GET /models/{model}`, which is a list of one."""

    workflowName: str
    models: list[DjlModel]


async def _name(gateway: Gateway) -> str:
    return (await gateway.model_info()).model.rstrip("/").rpartition("/")[2]


async def _check_name(gateway: Gateway, name: str | None) -> str:
    """The model's name. Raises RouteNotFound for another one; None is the only model."""
    own = await _name(gateway)
    if name not in (None, own):
        raise RouteNotFound(f"Model not found: {name[:100] if name else name}; this server has {own}")
    return own


async def _predictions(gateway: Gateway, request: Request) -> Response:
    return await _infer(gateway, request, request.path_params["model"])


async def _invocations(gateway: Gateway, request: Request) -> Response:
    return await _infer(gateway, request, request.query_params.get("model_name"))


async def _infer(gateway: Gateway, request: Request, name: str | None) -> Response:
    await _check_name(gateway, name)
    body = await request.body()
    if not body:
        raise InvalidField("the body must be that of /v1/extract: text, labels, ...")
    return json_response(await gateway.extract(ExtractRequest.model_validate_json(body)))


async def _ping(gateway: Gateway, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("the model is not ready")
    return json_response({await _name(gateway): DjlHealth()})


async def _models(gateway: Gateway, _: Request) -> Response:
    name, url = await _name(gateway), (await gateway.model_info()).model
    status: Literal["READY", "PENDING"] = "READY" if await gateway.ready() else "PENDING"
    return json_response(DjlModels([DjlListedModel(name, url, status)]))


async def _describe(gateway: Gateway, request: Request) -> Response:
    name = await _check_name(gateway, request.path_params["model"])
    info = await gateway.model_info()
    replicas = (await gateway.replicas()).replicas
    workers = [
        DjlWorker(number, "READY" if one.state == "ready" else "UNLOADED") for number, one in enumerate(replicas, 1)
    ]
    kind, _, number = info.device.partition(":")
    on_gpu = kind == "cuda"
    device = {"deviceType": "gpu" if on_gpu else "cpu", "deviceId": int(number or 0) if on_gpu else -1}
    model = DjlModel(
        modelName=name,
        modelUrl=info.model,
        batchSize=gateway.options.max_batch_size,
        requestInQueue=sum(one.waiting_items for one in replicas),
        status="Healthy" if await gateway.ready() else "Unhealthy",
        workerGroups=[DjlWorkerGroup(device, len(workers), len(workers), workers)],
    )
    return json_response([DjlWorkflow(name, [model])])


async def _not_supported(_: Gateway, __: Request) -> Response:
    raise NotSupported(
        "a server has one model from its start to its end: start another with `gliner-bento serve --model`, and set "
        "its replicas with --num-instances"
    )


_STATUSES = {**STATUSES, "invalid_field": 400, "queue_full": 503, "rate_limited": 503}
_EXTRACT_ERRORS = (400, 404, 413, 415, 422, 499, 500, 503, 504, 507)
_MODEL = path_parameter("model", "The model's name: the last part of its path or hub id.")
_VERSION = path_parameter("version", "Any: there is one version.")


def _endpoint(method: str, path: str, answer: Any, operation: Operation, scope: Any = "extract") -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        scope=scope,
        answer=answer,
        statuses=_STATUSES,
        error=DjlError,
        operation=operation,
    )


def _inference(name: str, parameters: list[dict[str, Any]]) -> Operation:
    return Operation(
        name=name,
        tag="compat",
        summary="DJL Serving's inference, with the body of /v1/extract",
        request=ExtractRequest,
        answer=ExtractResponse,
        errors=_EXTRACT_ERRORS,
        examples={ExtractRequest: {"text": TEXT, "labels": LABELS}},
        parameters=parameters,
    )


def _operation(name: str, summary: str, **options: Any) -> Operation:
    return Operation(name=name, tag="compat", summary=summary, **options)


def _refused(name: str, parameters: list[dict[str, Any]] | None = None) -> Operation:
    return _operation(name, "DJL Serving's management, not supported", errors=(501,), parameters=parameters or [])


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """Inference and management."""
    query = [{"name": "model_name", "in": "query", "schema": {"type": "string"}}]
    ping = _operation("djl_ping", "DJL Serving's probe", errors=(503,))
    listing = _operation("djl_models", "DJL Serving's list of models", answer=DjlModels)
    describe = _operation(
        "djl_model",
        "DJL Serving's description of a model",
        errors=(404, *READ_ERRORS),
        parameters=[_MODEL],
        more_types=[DjlWorkflow],
    )
    versioned = _inference("djl_predictions_version", [_MODEL, _VERSION])
    return [
        _endpoint("GET", "/ping", _ping, ping, scope=None),
        _endpoint("POST", "/predictions/{model}", _predictions, _inference("djl_predictions", [_MODEL])),
        _endpoint("POST", "/predictions/{model}/{version}", _predictions, versioned),
        _endpoint("POST", "/invocations", _invocations, _inference("djl_invocations", query)),
        _endpoint("GET", "/models", _models, listing),
        _endpoint("GET", "/models/{model}", _describe, describe),
        _endpoint("POST", "/models", _not_supported, _refused("djl_register"), scope="admin"),
        _endpoint("PUT", "/models/{model}", _not_supported, _refused("djl_scale", [_MODEL]), scope="admin"),
        _endpoint("DELETE", "/models/{model}", _not_supported, _refused("djl_unregister", [_MODEL]), scope="admin"),
    ]
