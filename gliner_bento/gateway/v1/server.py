"""`/v1/model`, `/v1/replicas`, the probes and the metrics. In the bento, BentoML's own probes and metrics come first."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gliner_bento.errors import NotReady
from gliner_bento.gateway.endpoint import Endpoint, Operation, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.replicas.base import ReplicaList
from gliner_bento.types import ModelCard


async def _model(gateway: Gateway, _: Request) -> Response:
    return json_response(await gateway.model())


async def _replicas(gateway: Gateway, _: Request) -> Response:
    return json_response(await gateway.replicas())


async def _alive(_: Gateway, __: Request) -> Response:
    return PlainTextResponse("\n")


async def _ready(gateway: Gateway, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("the server is not ready")
    return PlainTextResponse("\n")


async def _metrics(_: Gateway, __: Request) -> Response:
    from gliner_bento import metrics  # noqa: PLC0415  # binds to its files at import

    return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE)


def _text(operation: dict[str, Any]) -> dict[str, Any]:
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return operation


def _probe(name: str, answer: Any, summary: str, errors: tuple[int, ...] = ()) -> Endpoint:
    operation = Operation(name=name, tag="server", summary=summary, errors=errors, extra=_text)
    return Endpoint(method="GET", path=f"/{name}", answer=answer, operation=operation)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v1/model",
        answer=_model,
        operation=Operation(
            name="model", tag="server", summary="What is served, and with which limits", answer=ModelCard
        ),
    ),
    Endpoint(
        method="GET",
        path="/v1/replicas",
        answer=_replicas,
        operation=Operation(
            name="replicas", tag="server", summary="The state of each replica (num_instances)", answer=ReplicaList
        ),
    ),
    _probe("livez", _alive, "The process is alive"),
    _probe("healthz", _alive, "The process is alive"),
    _probe("readyz", _ready, "The model has answered its warm-up request", (503,)),
    _probe("metrics", _metrics, "Prometheus metrics"),
]
