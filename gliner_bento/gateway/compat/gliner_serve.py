"""The wire format of `gliner.serve` (gliner 0.2.29, Ray Serve), whose `GLiNERClient` works here unchanged.

Intended differences from gliner.serve: a request with a misspelt field, an invalid value or malformed JSON is answered
with 400, and fails no other request; long texts are processed whole. With the setting `compat_long_text: truncate` they
are cut, and the response has the header `X-GLiNER-Truncated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import NotRequired, TypedDict

from gliner_bento.gateway.adapters import AdapterApi
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import COMMON_ERRORS, Endpoint, json_response, query_parameter
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.media import JSON
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import MessageError
from gliner_bento.gateway.wire_format import ModelName, WireFormat, extract_errors
from gliner_bento.tasks.base import BASE_ADAPTER_ID
from gliner_bento.tasks.extraction import (
    LABELS,
    TEXT,
    Entity,
    ExtractionOptions,
    LongText,
    Relation,
    RelationArgument,
    extraction_of,
)
from gliner_bento.tasks.fields import Names, Score, Strict


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of this format; docs/settings.md describes each."""

    route_prefix: str
    compat_long_text: LongText


class GLiNERServeRequest(Strict):
    """The body of `POST /gliner`."""

    text: str
    labels: Annotated[Names, Field(min_length=1)]
    relations: Names | None = None
    threshold: Score | None = None
    relation_threshold: Score | None = None
    flat_ner: bool = True
    multi_label: bool = False
    adapter_id: str | None = None
    model: ModelName = None


@dataclass(frozen=True, slots=True)
class GLiNERServeArgument:
    """One end of a relation, with gliner's field names."""

    start: int
    end: int
    text: str
    type: str | None
    entity_idx: int | None


@dataclass(frozen=True, slots=True)
class GLiNERServeRelation:
    """A relation, with gliner's field names."""

    head: GLiNERServeArgument
    tail: GLiNERServeArgument
    relation: str
    score: float


class GLiNERServeResponse(TypedDict):
    """The answer of `POST /gliner`; `relations` is present if the request has any and the model supports them."""

    entities: Sequence[Entity]
    relations: NotRequired[Sequence[GLiNERServeRelation]]


class GLiNERServeAdapterCache(BaseModel):
    """The answer of `GET /gliner/adapter-cache`. If adapters are disabled, it has only the first two fields. It has the
    last four if the request names an adapter."""

    enabled: bool
    base_adapter_id: str
    loaded: list[str] | None = None
    disk_cached: list[str] | None = None
    disk_cache_dir: str | None = None
    max_disk_adapters: int | None = None
    gpu_slots: list[str | None] | None = None
    adapter_id: str | None = None
    cached: bool | None = None
    cpu_resident: bool | None = None
    gpu_resident: bool | None = None


async def _predict_route(gateway: Gateway, context: Context, request: Request) -> Response:
    body, truncated = await predict(gateway, context, await json_body(request, GLiNERServeRequest))
    headers = {"X-GLiNER-Truncated": "true"} if truncated else None
    return json_response(body, headers=headers)


async def _adapter_cache_route(gateway: Gateway, context: Context, request: Request) -> Response:
    return await _adapter_cache(await gateway.adapters(context), request.query_params.get("adapter_id"))


async def predict(gateway: Gateway, context: Context, request: GLiNERServeRequest) -> tuple[GLiNERServeResponse, bool]:
    """The answer, and whether the text was cut. As in gliner.serve, a model without relation extraction ignores the
    relations."""
    context.choose_model(request.model)
    model = await (await gateway.served(context)).info()
    with_relations = bool(request.relations) and model.supports_relations
    options = ExtractionOptions(
        labels=request.labels,
        relations=request.relations if with_relations else None,
        threshold=request.threshold,
        relation_threshold=request.relation_threshold,
        flat_ner=request.flat_ner,
        multi_label=request.multi_label,
        adapter_id=request.adapter_id,
        long_text=gateway.options.of_format(Options).compat_long_text,
    )
    answer = await gateway.run(context, extraction_of([request.text], options))
    body: GLiNERServeResponse = {"entities": answer.entities}
    if with_relations:
        body["relations"] = LazySequence(_relation, answer.relations)
    return body, answer.truncated


async def _adapter_cache(adapters: AdapterApi, adapter_id: str | None) -> Response:
    """The cache's state. As in gliner.serve, `cached` means on disk; the base model is always `cached` and
    `gpu_resident`."""
    answer = GLiNERServeAdapterCache(enabled=adapters.enabled, base_adapter_id=BASE_ADAPTER_ID)
    if adapters.enabled:
        is_base = adapter_id == BASE_ADAPTER_ID
        if adapter_id is not None and not is_base:
            adapters.check_id(adapter_id)
        status = await adapters.cache_status()
        answer.loaded, answer.disk_cached = sorted(status.in_memory), sorted(status.on_disk)
        answer.disk_cache_dir, answer.max_disk_adapters = status.disk_cache_dir, status.max_disk_adapters
        answer.gpu_slots = list(status.device_slots)
        if adapter_id is not None:
            answer.adapter_id = adapter_id
            answer.cached = is_base or adapter_id in answer.disk_cached
            answer.cpu_resident = adapter_id in answer.loaded
            answer.gpu_resident = is_base or adapter_id in answer.gpu_slots
    return Response(answer.model_dump_json(exclude_unset=True), media_type=JSON)


def _relation(relation: Relation) -> GLiNERServeRelation:
    return GLiNERServeRelation(
        head=_argument(relation.head),
        tail=_argument(relation.tail),
        relation=relation.relation,
        score=relation.score,
    )


def _argument(argument: RelationArgument) -> GLiNERServeArgument:
    return GLiNERServeArgument(
        start=argument.start,
        end=argument.end,
        text=argument.text,
        type=argument.label,
        entity_idx=argument.entity_idx,
    )


_FORMAT = WireFormat(
    error=MessageError,
    statuses={**STATUSES, "invalid_field": 400},  # as gliner.serve's clients expect; /v1 answers 422
    examples={GLiNERServeRequest: {"text": TEXT, "labels": LABELS}},
)


def endpoints(options: GatewayOptions) -> list[Endpoint]:
    """The routes at and below `route_prefix`, a setting that gliner.serve has too."""
    prefix = options.of_format(Options).route_prefix
    return [
        _FORMAT.post(
            prefix,
            _predict_route,
            "gliner_serve_predict",
            "gliner.serve's format",
            request=GLiNERServeRequest,
            response=GLiNERServeResponse,
            errors=extract_errors(without=(422,)),
        ),
        _FORMAT.get(
            f"{prefix}/adapter-cache",
            _adapter_cache_route,
            "gliner_serve_adapter_cache",
            "gliner.serve's adapter cache status",
            scope="adapters",
            response=GLiNERServeAdapterCache,
            errors=(400, *COMMON_ERRORS),
            parameters=[query_parameter("adapter_id", "Id of an adapter, whose state is added to the answer.")],
        ),
    ]
