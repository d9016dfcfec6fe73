"""DJL Serving's inference and management API (0.36): the body and the answer are those of `/v1/extract`.

A model has the name that it is served under, or the last part of its path or hub id; any version of it is the one that
is served. Registering, scaling and unregistering answer 501: a server has the models that it was started with. Tensors
(`tensor/ndlist`) answer 415: the model reads text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, InvalidField, NotReady, NotSupported
from gliner_bento.gateway.endpoint import READ_ERRORS, Endpoint, json_response, path_parameter
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.models import ServedModel, short_name
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.v1.tasks import answer_one
from gliner_bento.gateway.wire_format import WireFormat, extract_errors
from gliner_bento.tasks.extraction import EXTRACTION, LABELS, TEXT, ExtractRequest, ExtractResponse

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
    """A model of `GET /models/{model}`, which is a workflow there."""

    workflowName: str
    models: list[DjlModel]


class DjlDescription(RootModel[list[DjlWorkflow]]):
    """The answer of `GET /models/{model}`: a list of one."""


class DjlPing(RootModel[dict[str, DjlHealth]]):
    """The answer of `GET /ping`, by the model's name."""


async def _name(served: ServedModel) -> str:
    return short_name((await served.info()).model)


async def _predictions(gateway: Gateway, request: Request) -> Response:
    return await _infer(gateway, request, request.path_params["model"])


async def _invocations(gateway: Gateway, request: Request) -> Response:
    return await _infer(gateway, request, request.query_params.get("model_name"))


async def _infer(gateway: Gateway, request: Request, name: str | None) -> Response:
    body = await request.body()
    if not body:
        raise InvalidField("the body must be that of /v1/extract: text, labels, ...")
    fields = vars(ExtractRequest.model_validate_json(body))
    return await answer_one(EXTRACTION, gateway, fields | ({"model": name} if name else {}))


async def _ping(gateway: Gateway, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("the model is not ready")
    return json_response({await _name(served): DjlHealth() for served in gateway.models})


async def _models(gateway: Gateway, _: Request) -> Response:
    return json_response(DjlModels([await _listed(served) for served in gateway.models]))


async def _listed(served: ServedModel) -> DjlListedModel:
    return DjlListedModel(
        await _name(served), (await served.info()).model, "READY" if await served.ready() else "PENDING"
    )


async def _describe(gateway: Gateway, request: Request) -> Response:
    served = await gateway.models.find(request.path_params["model"])
    name, info = await _name(served), await served.info()
    replicas = (await served.replicas()).replicas
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
        status="Healthy" if await served.ready() else "Unhealthy",
        workerGroups=[DjlWorkerGroup(device, len(workers), len(workers), workers)],
    )
    return json_response([DjlWorkflow(name, [model])])


async def _not_supported(_: Gateway, __: Request) -> Response:
    raise NotSupported(
        "a server has the models that it was started with: start another with `gliner-bento serve --model`, and set "
        "its replicas with --num-instances"
    )


_FORMAT = WireFormat(
    error=DjlError,
    statuses={**STATUSES, "invalid_field": 400, "queue_full": 503, "rate_limited": 503},
    examples={ExtractRequest: {"text": TEXT, "labels": LABELS}},
)
_MODEL = path_parameter("model", "A model's name, as in /models.")
_VERSION = path_parameter("version", "Any: there is one version.")
_MODEL_NAME = {
    "name": "model_name",
    "in": "query",
    "schema": {"type": "string"},
    "description": "A model's name; default: the first.",
}


def _inference(path: str, handler: Any, name: str, *parameters: dict[str, Any]) -> Endpoint:
    return _FORMAT.post(
        path,
        handler,
        name,
        "DJL Serving's inference, with the body of /v1/extract",
        request=ExtractRequest,
        answer=ExtractResponse,
        errors=extract_errors(429),
        parameters=parameters,
    )


def _refused(method: str, path: str, name: str, *parameters: dict[str, Any]) -> Endpoint:
    summary = "DJL Serving's management, not supported"
    return _FORMAT.endpoint(
        method, path, _not_supported, name, summary, scope="admin", errors=(501,), parameters=parameters
    )


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """Inference and management."""
    return [
        _FORMAT.get("/ping", _ping, "djl_ping", "DJL Serving's probe", scope=None, answer=DjlPing, errors=(503,)),
        _inference("/predictions/{model}", _predictions, "djl_predictions", _MODEL),
        _inference("/predictions/{model}/{version}", _predictions, "djl_predictions_version", _MODEL, _VERSION),
        _inference("/invocations", _invocations, "djl_invocations", _MODEL_NAME),
        _FORMAT.get("/models", _models, "djl_models", "DJL Serving's list of models", answer=DjlModels),
        _FORMAT.get(
            "/models/{model}",
            _describe,
            "djl_model",
            "DJL Serving's description of a model",
            errors=(404, *READ_ERRORS),
            answer=DjlDescription,
            parameters=[_MODEL],
        ),
        _refused("POST", "/models", "djl_register"),
        _refused("PUT", "/models/{model}", "djl_scale", _MODEL),
        _refused("DELETE", "/models/{model}", "djl_unregister", _MODEL),
    ]
