"""Models, replicas and status under `/v1`, the probes, the metrics. In the bento, BentoML's own probes come first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gliner_bento.errors import NotReady
from gliner_bento.gateway.endpoint import MODEL, READ_ERRORS, Endpoint, Operation, asked_model, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.models import ServedModel
from gliner_bento.status_types import ModelCard, ReplicaList, ServerStatus
from gliner_bento.storage.api_keys import KeyScope
from gliner_bento.telemetry import metrics


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model in the list of OpenAI's API, with the fields that NeMo and Xinference add. id: its name in requests."""

    id: str
    model_name: str
    revision: Annotated[
        str | None, Field(description="The fingerprint of the weights; null until its replica has answered.")
    ]
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "gliner-bento"
    model_type: str = "token-classification"


@dataclass(frozen=True, slots=True)
class ListedModels:
    """The answer of `GET /v1/models`."""

    data: list[ListedModel]
    object: Literal["list"] = "list"


async def list_models(gateway: Gateway, _: Request) -> Response:
    """The served models as OpenAI's API lists them; the first is the default."""
    return json_response(ListedModels([await _listed(served) for served in gateway.models]))


async def _listed(served: ServedModel) -> ListedModel:
    try:
        model = await served.info()
    except NotReady:
        if not served.given:
            raise
        return ListedModel(served.given, served.given, None)
    return ListedModel(model.model, model.model, model.fingerprint)


async def _model(gateway: Gateway, request: Request) -> Response:
    return json_response(await (await asked_model(gateway, request)).card())


async def _replicas(gateway: Gateway, request: Request) -> Response:
    return json_response(await (await asked_model(gateway, request)).replicas())


async def _status(gateway: Gateway, request: Request) -> Response:
    return json_response(await gateway.status(await asked_model(gateway, request)))


async def _alive(_: Gateway, __: Request) -> Response:
    return PlainTextResponse("\n")


async def _ready(gateway: Gateway, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("the server is not ready")
    return PlainTextResponse("\n")


async def _metrics(gateway: Gateway, _: Request) -> Response:
    states = [await served.state() for served in gateway.models]
    others = await gateway.read_metrics() if gateway.read_metrics else None
    return Response(await asyncio.to_thread(metrics.exposition, states, others), media_type=metrics.CONTENT_TYPE)


def _text(operation: dict[str, Any]) -> dict[str, Any]:
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return operation


def _plain(
    name: str, answer: Any, summary: str, description: str, errors: tuple[int, ...] = (), scope: KeyScope | None = None
) -> Endpoint:
    operation = Operation(name=name, tag="server", summary=summary, description=description, errors=errors, extra=_text)
    return Endpoint(method="GET", path=f"/{name}", scope=scope, answer=answer, operation=operation)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v1/model",
        scope="extract",
        answer=_model,
        operation=Operation(
            name="get_model",
            tag="server",
            summary="What is served, and with which limits",
            description="The model with its family, device and precision, what it supports (relations, adapters, "
            "languages), and the limits of a request.",
            answer=ModelCard,
            errors=(404, *READ_ERRORS),
            parameters=[MODEL],
        ),
    ),
    Endpoint(
        method="GET",
        path="/v1/models",
        scope="extract",
        answer=list_models,
        operation=Operation(
            name="list_models",
            tag="server",
            summary="The served models as OpenAI's API lists them",
            description="Their names, of which a request names one in `model`; the first is the default.",
            answer=ListedModels,
        ),
    ),
    Endpoint(
        method="GET",
        path="/v1/replicas",
        scope="metrics",
        answer=_replicas,
        operation=Operation(
            name="list_replicas",
            tag="server",
            summary="The state of each replica (num_instances)",
            description="Whether each replica is ready, what waits and runs on it, and its adapters.",
            answer=ReplicaList,
            errors=(404, *READ_ERRORS),
            parameters=[MODEL],
        ),
    ),
    Endpoint(
        method="GET",
        path="/v1/status",
        scope="metrics",
        answer=_status,
        operation=Operation(
            name="get_status",
            tag="server",
            summary="The current state of the server, for people",
            description="Queue, lanes, throughput, adapters and the latest errors. For monitoring, read /metrics.",
            answer=ServerStatus,
            errors=(404, *READ_ERRORS),
            parameters=[MODEL],
        ),
    ),
    _plain("livez", _alive, "The process is alive", "A liveness probe: 200 as long as the process answers."),
    _plain("healthz", _alive, "The process is alive", "The same as /livez, under its older name."),
    _plain(
        "readyz",
        _ready,
        "The model has answered its warm-up request",
        "A readiness probe: 200 if requests are admitted, else 503.",
        (503,),
    ),
    _plain(
        "metrics",
        _metrics,
        "Prometheus metrics",
        "Counters, gauges and histograms in Prometheus' text format; docs/metrics.md describes them.",
        scope="metrics",
    ),
]
