"""`/v1/model`, `/v1/replicas`, `/v1/status`, probes and metrics. In the bento, BentoML serves /livez and /healthz."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gliner_bento.errors import NotReady
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import COMMON_ERRORS, MODEL, EndpointGroup, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.status_types import ModelCard, ReplicaList, ServerStatus
from gliner_bento.telemetry import metrics


async def _model(gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await (await gateway.served(context)).card())


async def _replicas(gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await (await gateway.served(context)).replicas())


async def _status(gateway: Gateway, context: Context, request: Request) -> Response:
    return json_response(await gateway.status(await gateway.served(context)))


async def _alive(*_: object) -> Response:
    return PlainTextResponse("\n")


async def _ready(gateway: Gateway, context: Context, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("; ".join(["the server is not ready", *_problems(gateway)]))
    return PlainTextResponse("".join(f"{line}\n" for line in _problems(gateway)) or "\n")


def _problems(gateway: Gateway) -> list[str]:
    """A line for each model that could not be loaded, without the reason: probes need no API key, and a reason may name
    a folder. On a server with keys also without the model's name."""
    failed = [served for served in gateway.models if served.row.reason]
    has_keys = gateway.options.api_keys is not None
    return [f"{'a model' if has_keys else served.in_messages}: {served.row.state}" for served in failed]


async def _metrics(gateway: Gateway, context: Context, _: Request) -> Response:
    states = [await served.state() for served in gateway.models]
    remote = await gateway.read_metrics() if gateway.read_metrics else None
    return Response(await asyncio.to_thread(metrics.exposition, states, remote), media_type=metrics.CONTENT_TYPE)


def _text(operation: dict[str, Any]) -> dict[str, Any]:
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return operation


_PROBES = EndpointGroup(tag="server", scope=None, errors=())
_MODEL = EndpointGroup(tag="server", errors=(404, *COMMON_ERRORS), parameters=[MODEL])

ENDPOINTS = [
    _MODEL.get(
        "/v1/model",
        _model,
        "get_model",
        "What is served, and with which limits",
        "The model with its family, device and precision, what it supports (relations, adapters, "
        "languages), and the limits of a request.",
        response=ModelCard,
    ),
    _MODEL.get(
        "/v1/replicas",
        _replicas,
        "list_replicas",
        "The state of each replica (num_instances)",
        "Whether each replica is ready, what waits and runs on it, and its adapters.",
        scope="metrics",
        response=ReplicaList,
    ),
    _MODEL.get(
        "/v1/status",
        _status,
        "get_status",
        "The current state of the server, for people",
        "Queue, lanes, throughput, adapters and the latest errors. For monitoring, read /metrics.",
        scope="metrics",
        response=ServerStatus,
    ),
    _PROBES.get(
        "/livez",
        _alive,
        "livez",
        "The process is alive",
        "A liveness probe: 200 as long as the process answers.",
        extra=_text,
    ),
    _PROBES.get(
        "/healthz",
        _alive,
        "healthz",
        "The process is alive",
        "The same as /livez, under its older name.",
        extra=_text,
    ),
    _PROBES.get(
        "/readyz",
        _ready,
        "readyz",
        "The model has answered its warm-up request",
        "A readiness probe: 200 if requests are admitted, else 503.",
        errors=(503,),
        extra=_text,
    ),
    _PROBES.get(
        "/metrics",
        _metrics,
        "metrics",
        "Prometheus metrics",
        "Counters, gauges and histograms in Prometheus' text format; docs/metrics.md describes them.",
        scope="metrics",
        extra=_text,
    ),
]
