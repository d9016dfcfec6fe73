"""The wire format of `gliner.serve` (gliner 0.2.29, Ray Serve): its `GLiNERClient` works against it unchanged.

What differs from that server, on purpose: a misspelt field, a bad value or malformed JSON is answered 400 and concerns
that request alone, and long texts are read whole. Where the setting `compat_long_text` has them cut, the answer says so
in the header `X-GLiNER-Truncated`.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gliner_bento.errors import GLiNERBentoError, InvalidField, MalformedRequest
from gliner_bento.gateway.adapters import Adapters
from gliner_bento.gateway.error_body import error_response, from_model
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.types import (
    BASE_ADAPTER_ID,
    Entity,
    ExtractRequest,
    Labels,
    Relation,
    RelationArgument,
    Relations,
    Score,
    Strict,
)


class GLiNERServeRequest(Strict):
    """The body of `POST /gliner`."""

    text: str
    labels: Labels
    relations: Relations | None = None
    threshold: Score | None = None
    relation_threshold: Score | None = None
    flat_ner: bool = True
    multi_label: bool = False
    adapter_id: str | None = None


class GLiNERServeArgument(BaseModel):
    """One end of a relation, as gliner names it."""

    start: int
    end: int
    text: str
    type: str
    entity_idx: int


class GLiNERServeRelation(BaseModel):
    """A relation, as gliner names it."""

    head: GLiNERServeArgument
    tail: GLiNERServeArgument
    relation: str
    score: float


class GLiNERServeResponse(BaseModel):
    """The answer of `POST /gliner`; `relations` is there if the model finds any and some were asked for."""

    entities: list[Entity]
    relations: list[GLiNERServeRelation] | None = None


class GLiNERServeAdapterCache(BaseModel):
    """The answer of `GET /gliner/adapter-cache`: the first two where adapters are not enabled, the last four of one."""

    enabled: bool
    base_adapter_id: str = BASE_ADAPTER_ID
    loaded: list[str] | None = None
    disk_cached: list[str] | None = None
    disk_cache_dir: str | None = None
    max_disk_adapters: int | None = None
    gpu_slots: list[str | None] | None = None
    adapter_id: str | None = None
    cached: bool | None = None
    cpu_resident: bool | None = None
    gpu_resident: bool | None = None


def routes(prefix: str, gateway: Callable[[], Gateway]) -> list[Route]:
    """The routes below `prefix` (gliner.serve's `route_prefix`, `/gliner` by default)."""

    async def predict(request: Request) -> Response:
        try:
            asked = GLiNERServeRequest.model_validate_json(await request.body() or b"{}")
            return await _predict(gateway(), asked)
        except ValidationError as invalid:
            return _error(from_model(invalid))
        except GLiNERBentoError as error:
            return _error(error)

    async def adapter_cache(request: Request) -> Response:
        try:
            return await _adapter_cache(gateway().adapters, request.query_params.get("adapter_id"))
        except GLiNERBentoError as error:
            return _error(error)

    return [
        Route(prefix, predict, methods=["POST"]),
        Route(f"{prefix}/", predict, methods=["POST"]),
        Route(f"{prefix}/adapter-cache", adapter_cache, methods=["GET"]),
    ]


async def _predict(gateway: Gateway, asked: GLiNERServeRequest) -> Response:
    """Relations asked of a model without them are ignored, as gliner.serve does."""
    relates = bool(asked.relations) and (await gateway.describe())["supports_relations"]
    long_text = gateway.limits.compat_long_text
    options = asked.model_dump() | {"relations": asked.relations if relates else None, "long_text": long_text}
    found = await gateway.extract(ExtractRequest.model_construct(**options))
    headers = {"X-GLiNER-Truncated": "true"} if found.truncated else None
    relations = [_relation(relation) for relation in found.relations] if relates else None
    answer = GLiNERServeResponse(entities=found.entities, relations=relations)
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json", headers=headers)


async def _adapter_cache(adapters: Adapters, adapter_id: str | None) -> Response:
    """As gliner.serve has it, `cached` means on disk, and the model itself is there always."""
    answer = GLiNERServeAdapterCache(enabled=adapters.enabled)
    if adapters.enabled:
        is_base = adapter_id == BASE_ADAPTER_ID
        if adapter_id is not None and not is_base:
            adapters.check_id(adapter_id)
        status = await adapters.cache()
        answer.loaded, answer.disk_cached = sorted(status["in_memory"]), sorted(status["on_disk"])
        answer.disk_cache_dir, answer.max_disk_adapters = status["disk_cache_dir"], status["max_disk_adapters"]
        answer.gpu_slots = list(status["device_slots"])
        if adapter_id is not None:
            answer.adapter_id = adapter_id
            answer.cached = is_base or adapter_id in answer.disk_cached
            answer.cpu_resident = adapter_id in answer.loaded
            answer.gpu_resident = is_base or adapter_id in answer.gpu_slots
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")


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


def _error(error: GLiNERBentoError) -> Response:
    """gliner.serve's clients know 400 for what is wrong with a request, where `/v1` says 422."""
    return error_response(error, status=MalformedRequest.status if isinstance(error, InvalidField) else None)
