"""The wire format of vllm-factory's GLiNER plugins (commit dd3f9f6): vLLM's `POST /pooling`.

If the model is a GLiNER2 model, or the request's `data` has a `schema` or another field that only the GLiNER2 plugin
has, the answer has that plugin's form: entities by label, and relations, classes and instances of structures by name.

Intended differences from vllm-factory: an unknown field of `data` is an error that names it, except `candidate_labels`,
which vllm-factory documents but ignores; scores are not rounded; long texts are processed whole.
Of vLLM's own fields, outside `data`, only `model` is used, and only if the server has several models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import HEALTH, now_s
from gliner_bento.gateway.wire_format import WireFormat, entity_types_of_relations, extract_errors, has_gliner2
from gliner_bento.tasks.classifications import ClassificationOptions, LabelScore
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
from gliner_bento.tasks.fields import Lenient, Name, Score, Strict
from gliner_bento.tasks.labels import Labels, Types, decoys_of
from gliner_bento.tasks.structures import FieldOptions, FieldValue


def _without_empty_descriptions(types: Any) -> Any:
    """Replaces an empty description with {}, an object without a description."""
    return {name: options or {} for name, options in types.items()} if isinstance(types, dict) else types


EntityTypes = Annotated[Labels, BeforeValidator(_without_empty_descriptions)]
RelationTypes = Annotated[Types, BeforeValidator(_without_empty_descriptions)]


class PoolingClassification(Strict):
    """A classification of the GLiNER2 plugin."""

    task: Name = Field(description="Name of the classification.")
    labels: Annotated[list[Name] | dict[Name, Name], Field(min_length=1)]
    multi_label: bool = False
    cls_threshold: Score | None = Field(
        default=None, description="With multi_label, the lowest score of a label. Default: data.threshold."
    )


class PoolingField(Strict):
    """A field of a structure."""

    name: Name
    dtype: Literal["str", "list"] = "list"
    threshold: Score | None = None
    choices: Annotated[list[Name], Field(min_length=1)] | None = None
    description: Name | None = None

    @property
    def options(self) -> FieldOptions:
        """The options of the field in requests of `/v1`."""
        return {
            "type": "string" if self.dtype == "str" else "list",
            "threshold": self.threshold,
            "choices": self.choices,
            "description": self.description,
        }


class PoolingStructure(Strict):
    """A structure of the GLiNER2 plugin."""

    fields: Annotated[list[PoolingField], Field(min_length=1)]


class PoolingSchema(Strict):
    """What the GLiNER2 plugin extracts."""

    entities: EntityTypes | None = Field(
        default=None, description="Names, or {name: description}, or {name: {description, threshold, returned}}."
    )
    relations: RelationTypes | None = Field(
        default=None,
        description="In the forms of entities. Without entities, the relations of a GLiNER model are between entities "
        "of the types in the setting fastino_labels.",
    )
    classifications: list[PoolingClassification] | None = Field(default=None, description="For GLiNER2 models.")
    structures: dict[Name, PoolingStructure] | None = Field(default=None, description="For GLiNER2 models.")


class PoolingData(Strict):
    """The fields of the GLiNER plugins and of the GLiNER2 plugin. `flat_ner` is false by default, unlike in gliner."""

    text: str
    labels: EntityTypes | None = Field(
        default=None, description="Entity types, in the forms of schema.entities. Required unless there is a schema."
    )
    threshold: Score = 0.5
    flat_ner: bool = False
    multi_label: bool = False
    candidate_labels: Any = Field(default=None, description="Ignored.")
    wanted: PoolingSchema | None = Field(default=None, alias="schema", description="What to find, instead of labels.")
    include_confidence: bool = Field(default=False, description="GLiNER2 plugin: return scores.")
    include_spans: bool = Field(default=False, description="GLiNER2 plugin: return offsets.")
    truncate_overflow_text: bool = Field(
        default=False, description="GLiNER2 plugin: cut a text beyond the maximum length; else it is processed whole."
    )
    runtime: Literal["classic"] = Field(
        default="classic", description="Other runtimes of the GLiNER2 plugin are refused."
    )
    adapter: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-:/]{1,128}$")] | None = Field(
        default=None, description="GLiNER2 plugin: not used, and returned as it is."
    )


class PoolingRequest(Lenient):
    """The body of `POST /pooling`. vLLM's other fields are ignored."""

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
        Field(description="A list of entities; in the GLiNER2 plugin's form, an object with results by name."),
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
        kind = _ERROR_TYPES.get(status, "InternalServerError")
        return cls(VllmErrorInfo(detail.message, kind, detail.param, status))


async def _pooling(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, PoolingRequest)
    context.choose_model(gateway.if_several(body.model))
    await gateway.served(context)
    data = body.data
    schema = _schema(data)
    for_gliner2 = bool(data.model_fields_set & _GLINER2_PLUGIN_FIELDS) or await has_gliner2(gateway, context)
    options = ExtractionOptions(
        labels=schema.entities or (await entity_types_of_relations(gateway, context) if schema.relations else None),
        relations=cast(Any, schema.relations),
        classifications=_classifications(schema, data.threshold) or None,
        structures=_structures(schema) or None,
        threshold=data.threshold,
        relation_threshold=data.threshold,
        flat_ner=data.flat_ner or for_gliner2,
        multi_label=data.multi_label,
        long_text="truncate" if data.truncate_overflow_text else "window",
    )
    extraction = await gateway.run(context, extraction_of([data.text], options))
    answer = _gliner2_answer(extraction, schema, data) if for_gliner2 else extraction.entities
    headers = {"X-VLLM-Factory-Schema-Size": str(len(schema.entities or ()) + len(schema.relations or ()))}
    return json_response(PoolingResponse(context.id, now_s(), answer), headers=headers)


def _schema(data: PoolingData) -> PoolingSchema:
    """What to extract. Raises InvalidField if nothing is requested."""
    schema = data.wanted or PoolingSchema(entities=data.labels)
    if not (schema.entities or schema.relations or schema.classifications or schema.structures):
        param = "data.schema.entities" if data.wanted else "data.labels"
        raise InvalidField(f"{param}: Field required", param=param)
    return schema


def _classifications(schema: PoolingSchema, threshold: float) -> dict[str, ClassificationOptions]:
    """Classifications as `/v1/extract` takes them. threshold: the default. Raises InvalidField for a repeated name."""
    options: dict[str, ClassificationOptions] = {}
    for classification in schema.classifications or ():
        name = classification.task
        if name in options or name in (schema.structures or {}):
            param = "data.schema.classifications"
            raise InvalidField(f"{param}: {name[:100]!r} is repeated", param=param)
        label_threshold = threshold if classification.cls_threshold is None else classification.cls_threshold
        options[name] = {
            "labels": classification.labels,
            "multi_label": classification.multi_label,
            "threshold": label_threshold if classification.multi_label else None,
        }
    return options


def _structures(schema: PoolingSchema) -> dict[str, dict[str, FieldOptions]]:
    """Structures as `/v1/extract` takes them. Raises InvalidField for a repeated field."""
    options: dict[str, dict[str, FieldOptions]] = {}
    for name, structure in (schema.structures or {}).items():
        options[name] = {field.name: field.options for field in structure.fields}
        if len(options[name]) < len(structure.fields):
            param = f"data.schema.structures.{name[:100]}"
            raise InvalidField(f"{param}: a field is repeated", param=param)
    return options


def _gliner2_answer(extraction: ExtractResponse, schema: PoolingSchema, data: PoolingData) -> dict[str, Any]:
    """The answer of the GLiNER2 plugin, with every type of the schema, also types without predictions."""

    def value(span: Entity | RelationArgument | FieldValue, score: float) -> Any:
        if not data.include_confidence and not data.include_spans:
            return span.text
        confidence = {"confidence": score} if data.include_confidence else {}
        offsets = {"start": span.start, "end": span.end} if data.include_spans and span.start is not None else {}
        return {"text": span.text, **confidence, **offsets}

    def entity_value(entity: Entity) -> Any:
        return value(entity, entity.score)

    def ends(relation: Relation) -> Any:
        return {"head": value(relation.head, relation.score), "tail": value(relation.tail, relation.score)}

    answer: dict[str, Any] = {}
    if schema.entities:
        decoys = decoys_of(schema.entities)
        entities: dict[str, list[Entity]] = {label: [] for label in schema.entities if label not in decoys}
        for entity in extraction.entities:
            entities.setdefault(entity.label, []).append(entity)  # a deny list has labels of its own
        answer["entities"] = {label: LazySequence(entity_value, of_label) for label, of_label in entities.items()}
    if schema.relations:
        relations: dict[str, list[Relation]] = {name: [] for name in schema.relations}
        for relation in extraction.relations:
            relations[relation.relation].append(relation)
        answer["relation_extraction"] = {name: LazySequence(ends, of_name) for name, of_name in relations.items()}

    def values(field: PoolingField, extracted: Sequence[FieldValue]) -> Any:
        formatted = [value(span, span.score) for span in extracted]
        return formatted if field.dtype == "list" else next(iter(formatted), None)

    structures = {
        name: [
            {field.name: values(field, instance[field.name]) for field in structure.fields}
            for instance in extraction.structures[name]
        ]
        for name, structure in (schema.structures or {}).items()
    }
    adapter = {"adapter": data.adapter} if data.adapter else {}
    return answer | _classes(extraction, schema, data) | structures | adapter


def _classes(extraction: ExtractResponse, schema: PoolingSchema, data: PoolingData) -> dict[str, Any]:
    """The answer for each classification, by name: with multi_label, the labels in the request's order; else the best
    label, or None if its score is below `data.threshold`."""

    def formatted(scored: LabelScore) -> Any:
        return {"label": scored.label, "confidence": scored.score} if data.include_confidence else scored.label

    classes: dict[str, Any] = {}
    for classification in schema.classifications or ():
        name, labels = classification.task, extraction.classifications[classification.task].labels
        if classification.multi_label:
            order = list(classification.labels)
            ordered = sorted(labels, key=lambda scored: order.index(scored.label))
            classes[name] = [formatted(scored) for scored in ordered]
        else:
            classes[name] = next((formatted(scored) for scored in labels if scored.score >= data.threshold), None)
    return classes


_GLINER2_PLUGIN_FIELDS = {
    "wanted",
    "include_confidence",
    "include_spans",
    "truncate_overflow_text",
    "runtime",
    "adapter",
}
_ERROR_TYPES = {
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
    """vLLM's route, and its health check."""
    pooling = _FORMAT.post(
        "/pooling",
        _pooling,
        "vllm_factory_pooling",
        "vllm-factory's format",
        request=PoolingRequest,
        response=PoolingResponse,
        errors=extract_errors(without=(422,)),
    )
    return [pooling, HEALTH]
