"""The wire format of vllm-factory's GLiNER plugins (dd3f9f6): vLLM's `POST /pooling`.

`data` with a `schema`, or with another field of the GLiNER2 plugin, is answered as that plugin answers: entities by
label, and relations. Classifications and structures are refused: GLiNER models extract spans.

Intended differences from that server: an unknown field of `data` is an error that names it (`candidate_labels`, which
its documentation shows and its code ignores, is ignored); scores are not rounded; long texts are processed whole.
Fields beside `data` are vLLM's and are ignored; `model` too, if the server has one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, InvalidField
from gliner_bento.gateway import request_id
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import HEALTH, now_s
from gliner_bento.gateway.wire_format import WireFormat, extract_errors
from gliner_bento.tasks.extraction import (
    LABELS,
    TEXT,
    Entity,
    ExtractionOptions,
    ExtractResponse,
    Relation,
    RelationArgument,
    extraction_of,
)
from gliner_bento.tasks.fields import Elements, Name, Score, Strict
from gliner_bento.tasks.labels import Labels


def _described(types: Any) -> Any:
    """An empty description is none."""
    return {name: given or {} for name, given in types.items()} if isinstance(types, dict) else types


Types = Annotated[Labels, BeforeValidator(_described)]


class PoolingSchema(Strict):
    """What the GLiNER2 plugin extracts."""

    entities: Types | None = Field(
        default=None, description="Names, or {name: description}, or {name: {description, threshold}}."
    )
    relations: Types | None = Field(
        default=None, description="As entities. Without entities: between those of the setting fastino_labels."
    )
    classifications: Any = Field(default=None, description="Refused unless empty: not supported by GLiNER models.")
    structures: Any = Field(default=None, description="Refused unless empty: not supported by GLiNER models.")


class PoolingData(Strict):
    """What the GLiNER plugins read, and the GLiNER2 plugin. `flat_ner` is false by default, unlike in gliner."""

    text: str
    labels: Elements[Annotated[list[Name], Field(min_length=1)]] | None = Field(
        default=None, description="Required unless there is a schema."
    )
    threshold: Score = 0.5
    flat_ner: bool = False
    multi_label: bool = False
    candidate_labels: Any = Field(default=None, description="Ignored.")
    wanted: PoolingSchema | None = Field(default=None, alias="schema", description="Instead of labels.")
    include_confidence: bool = Field(default=False, description="GLiNER2 plugin: scores.")
    include_spans: bool = Field(default=False, description="GLiNER2 plugin: offsets.")
    truncate_overflow_text: bool = Field(
        default=False, description="GLiNER2 plugin: cut a text beyond the maximum length; else it is processed whole."
    )
    adapter: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-:/]{1,128}$")] | None = Field(
        default=None, description="GLiNER2 plugin: returned, and not used."
    )


class PoolingRequest(BaseModel):
    """The body of `POST /pooling`. vLLM's other fields are ignored."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    data: PoolingData
    model: str | None = Field(default=None, description="Ignored if the server has one model.")
    task: str | None = Field(default=None, description="Ignored.")


@dataclass(frozen=True, slots=True)
class PoolingResponse:
    """The answer of `POST /pooling`: vLLM's `IOProcessorResponse`."""

    request_id: str
    created_at: int
    data: Annotated[
        Sequence[Entity] | dict[str, Any],
        Field(description="A list of entities; for a schema, entities by label, and relations by relation."),
    ]


@dataclass(frozen=True, slots=True)
class VllmErrorInfo:
    """vLLM's description of an error."""

    message: str
    type: str
    param: str | None
    code: int


@dataclass(frozen=True, slots=True)
class VllmError:
    """vLLM's error body."""

    error: VllmErrorInfo

    @classmethod
    def of(cls, detail: ErrorDetail, status: int) -> VllmError:
        """The body of an error."""
        return cls(VllmErrorInfo(detail.message, _TYPES.get(status, "InternalServerError"), detail.param, status))


async def _pooling(gateway: Gateway, request: Request) -> Response:
    asked = PoolingRequest.model_validate_json(await request.body() or b"{}")
    gateway, data = await gateway.of_any(asked.model), asked.data
    schema = _schema(data)
    options = ExtractionOptions(
        labels=schema.entities or list(gateway.options.fastino_labels),
        relations=cast(Any, schema.relations),
        threshold=data.threshold,
        relation_threshold=data.threshold,
        flat_ner=data.flat_ner or _is_gliner2(data),
        multi_label=data.multi_label,
        long_text="truncate" if data.truncate_overflow_text else "window",
    )
    found = await gateway.run(extraction_of([data.text], options))
    answer = _gliner2_answer(found, schema, data) if _is_gliner2(data) else found.entities
    headers = {"X-VLLM-Factory-Schema-Size": str(len(schema.entities or ()) + len(schema.relations or ()))}
    return json_response(PoolingResponse(request_id.current(), now_s(), answer), headers=headers)


def _is_gliner2(data: PoolingData) -> bool:
    """Whether `data` has a field of the GLiNER2 plugin only."""
    return bool(data.model_fields_set & _GLINER2_FIELDS)


def _schema(data: PoolingData) -> PoolingSchema:
    """What to extract. Raises InvalidField for nothing, and for what is not supported."""
    schema = data.wanted or PoolingSchema(entities=data.labels)
    for name in ("classifications", "structures"):
        if getattr(schema, name):
            raise InvalidField(f"data.schema.{name}: not supported by this model", param=f"data.schema.{name}")
    if not schema.entities and not schema.relations:
        param = "data.schema.entities" if data.wanted else "data.labels"
        raise InvalidField(f"{param}: Field required", param=param)
    return schema


def _gliner2_answer(found: ExtractResponse, schema: PoolingSchema, data: PoolingData) -> dict[str, Any]:
    """Every type of the schema is present, and empty if nothing was extracted."""

    def value(one: Entity | RelationArgument, score: float) -> Any:
        if not data.include_confidence and not data.include_spans:
            return one.text
        confidence = {"confidence": score} if data.include_confidence else {}
        return {"text": one.text, **confidence, **({"start": one.start, "end": one.end} if data.include_spans else {})}

    def ends(one: Relation) -> Any:
        return {"head": value(one.head, one.score), "tail": value(one.tail, one.score)}

    answer: dict[str, Any] = {}
    if schema.entities:
        entities: dict[str, list[Entity]] = {label: [] for label in schema.entities}
        for entity in found.entities:
            entities[entity.label].append(entity)
        answer["entities"] = {
            label: LazySequence(lambda one: value(one, one.score), of_label) for label, of_label in entities.items()
        }
    if schema.relations:
        relations: dict[str, list[Relation]] = {name: [] for name in schema.relations}
        for relation in found.relations:
            relations[relation.relation].append(relation)
        answer["relation_extraction"] = {name: LazySequence(ends, of_name) for name, of_name in relations.items()}
    return answer | ({"adapter": data.adapter} if data.adapter else {})


_GLINER2_FIELDS = {"wanted", "include_confidence", "include_spans", "truncate_overflow_text", "adapter"}


_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "BadRequestError",
    413: "BadRequestError",
    415: "BadRequestError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}
_REQUEST = {"model": "demo", "task": "plugin", "data": {"text": TEXT, "labels": LABELS, "threshold": 0.3}}
_FORMAT = WireFormat(
    error=VllmError,
    statuses={**STATUSES, "invalid_field": 400, "limit_exceeded": 400},
    examples={PoolingRequest: _REQUEST},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """vLLM's route, and its probe."""
    pooling = _FORMAT.post(
        "/pooling",
        _pooling,
        "vllm_factory_pooling",
        "vllm-factory's format",
        request=PoolingRequest,
        answer=PoolingResponse,
        errors=extract_errors(422),
    )
    return [pooling, HEALTH]
