"""Fastino's GLiNER2 API, as the client of gliner2 2.1.0 calls it: `POST /gliner-2`, for entities, relations,
classifications and structures.

A request may ask for relations without naming entity types. GLiNER2 models then relate any spans; other models relate
entities of the types in the setting `fastino_labels`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Discriminator, Field, Tag, model_validator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import DetailError
from gliner_bento.gateway.wire_format import (
    ModelName,
    WireFormat,
    entity_types_of_relations,
    extract_errors,
)
from gliner_bento.tasks.classifications import ClassificationOptions, ClassificationResult
from gliner_bento.tasks.extraction import (
    TEXT,
    Entity,
    ExtractBatchResponse,
    Extraction,
    ExtractionOptions,
    Relation,
    RelationArgument,
    extraction_of,
    results_or_raise,
)
from gliner_bento.tasks.fields import Elements, Name, Score, Strict
from gliner_bento.tasks.labels import decoys_of
from gliner_bento.tasks.structures import FieldOptions, FieldValue, Instance

_CLASSIFICATION = "classification"
"""The name of the only classification in an answer of the task classify_text."""

Dtype = Literal["list", "str"]
_Scored = TypeVar("_Scored", Entity, FieldValue)


class FastinoRelationOptions(Strict):
    """The options of a relation type."""

    description: Name | None = None
    threshold: Score | None = None


class FastinoEntityOptions(FastinoRelationOptions):
    """The options of an entity type."""

    dtype: Dtype | None = None
    returned: bool = Field(default=True, description="As in /v1/extract.")


def _kind_of(value: object) -> str:
    """The tag of a union's branch. Tags have the form of pydantic's type names, which error messages leave out."""
    return "str" if isinstance(value, str) else "dict[options]"


EntityTypes = Elements[
    list[Name]
    | dict[
        Name,
        Annotated[
            Annotated[Name, Tag("str")] | Annotated[FastinoEntityOptions, Tag("dict[options]")], Discriminator(_kind_of)
        ],
    ]
]
RelationTypes = Elements[
    list[Name]
    | dict[
        Name,
        Annotated[
            Annotated[Name, Tag("str")] | Annotated[FastinoRelationOptions, Tag("dict[options]")],
            Discriminator(_kind_of),
        ],
    ]
]


_Labels = Elements[list[Name] | dict[Name, Name]]


class FastinoClassification(Strict):
    """A classification with options."""

    labels: _Labels
    multi_label: bool = False
    cls_threshold: Score = 0.5
    top_k: Annotated[int, Field(ge=1)] | None = None


class FastinoField(Strict):
    """A field of a structure."""

    name: Name
    dtype: Dtype = "list"
    choices: list[Name] | None = None
    description: Name | None = None
    threshold: Score | None = None

    @classmethod
    def of(cls, given: str | FastinoField) -> FastinoField:
        """Parse the short form of a field, `name::str::[choice|choice]::description`: all parts but the name are
        optional, in any order. The default dtype is `str` if there are choices, else `list`."""
        if not isinstance(given, str):
            return given
        name, *parts = given.split("::")
        options: dict[str, Any] = {}
        for part in parts:
            if part in ("str", "list"):
                options["dtype"] = part
            elif part.startswith("[") and part.endswith("]"):
                options["choices"] = [*filter(None, map(str.strip, part[1:-1].split("|")))]
            elif part:
                options["description"] = part
        if "choices" in options:
            options.setdefault("dtype", "str")
        return cls(name=name, **options)


def _kind_of_classification(value: object) -> str:
    return "dict[options]" if isinstance(value, dict) and "labels" in value else "list[labels]"


class FastinoSchema(Strict):
    """What to extract, for the task `schema`."""

    entities: EntityTypes | None = Field(default=None, description="Names, {name: description}, or {name: options}.")
    entity_dtype: Dtype = Field(default="list", description="`list`: all entities. `str`: the best one, or null.")
    entity_threshold: Score | None = Field(default=None, description="Default: the request's threshold.")
    relations: RelationTypes | None = Field(default=None, description="Relation types, in the forms of entities.")
    relation_threshold: Score | None = Field(default=None, description="Default: the request's threshold.")
    classifications: (
        Elements[
            dict[
                Name,
                Annotated[
                    Annotated[_Labels, Tag("list[labels]")] | Annotated[FastinoClassification, Tag("dict[options]")],
                    Discriminator(_kind_of_classification),
                ],
            ]
        ]
        | None
    ) = Field(default=None, description="By name: labels, {label: description}, or `labels` with options.")
    categories: _Labels | None = Field(default=None, description="Labels to choose from, for the task classify_text.")
    structures: (
        Elements[
            dict[
                Name,
                list[
                    Annotated[
                        Annotated[Name, Field(pattern="^[^:]"), Tag("str")]
                        | Annotated[FastinoField, Tag("dict[options]")],
                        Discriminator(_kind_of),
                    ]
                ],
            ]
        ]
        | None
    ) = Field(default=None, description="By name, fields: `name::str::[choice|choice]::description`, or with options.")


def _kind_of_schema(value: object) -> str:
    return "list[names]" if isinstance(value, list) else "dict[schema]"


class FastinoRequest(Strict):
    """The body of `POST /gliner-2`."""

    task: Literal["extract_entities", "classify_text", "extract_json", "schema"]
    text: str | Elements[list[str]]
    wanted: Annotated[
        Annotated[Elements[list[Name]], Tag("list[names]")] | Annotated[FastinoSchema, Tag("dict[schema]")],
        Discriminator(_kind_of_schema),
    ] = Field(
        alias="schema",
        description="For the task extract_entities, a list of entity types. For extract_json, what a schema has in "
        "`structures`. For other tasks, a schema.",
    )
    threshold: Score = 0.5
    include_confidence: bool = False
    include_spans: bool = False
    format_results: bool = Field(default=True, description="false is refused.")
    model: ModelName = None

    @model_validator(mode="before")
    @classmethod
    def _with_wrapped_structures(cls, body: Any) -> Any:
        """Converts the `schema` of the task extract_json, which has only structures, to that of the other tasks."""
        if isinstance(body, dict) and body.get("task") == "extract_json":
            return {**body, "schema": {"structures": body.get("schema")}}
        return body


class FastinoResult(TypedDict, total=False):
    """What was extracted from a text; classifications and structures are under their names. Values are strings, or
    objects if confidences or spans were requested."""

    entities: dict[str, Any]
    relation_extraction: dict[str, Sequence[Any]]
    classification: Any


@dataclass(frozen=True, slots=True)
class FastinoResponse:
    """The answer of `POST /gliner-2`. result: a list if the request has a list of texts."""

    result: FastinoResult | list[FastinoResult]


@dataclass(frozen=True, slots=True)
class _ValueFormat:
    """Formats the values of an answer, with or without confidences and spans."""

    confidence: bool
    spans: bool

    def entities(self, entities: Sequence[Entity]) -> Sequence[Any]:
        """The values of entities, best first."""
        ranked = sorted(entities, key=lambda entity: (-entity.score, entity.start))
        return LazySequence(lambda entity: self._value(entity, entity.score), self._distinct(ranked))

    def relation(self, relation: Relation) -> Any:
        """The two ends of a relation, each with the relation's score."""
        head, tail = (self._value(end, relation.score) for end in (relation.head, relation.tail))
        return {"head": head, "tail": tail} if self.confidence or self.spans else [head, tail]

    def classes(self, result: ClassificationResult, options: FastinoClassification) -> Any:
        """The best label. With multi_label, a list: the labels that reach `cls_threshold`, or the best if none does.
        The list has the request's order; with `top_k`, it has only the `top_k` best labels, best first."""
        order = list(options.labels)
        fitting = [scored for scored in result.labels if scored.score >= options.cls_threshold]
        fitting = fitting or list(result.labels[:1])
        if options.top_k:
            fitting = fitting[: options.top_k]
        else:
            fitting.sort(key=lambda scored: order.index(scored.label))
        values = [
            {"label": scored.label, "confidence": scored.score} if self.confidence else scored.label
            for scored in fitting
        ]
        return values if options.multi_label else next(iter(values), None)

    def instance(self, instance: Instance, fields: Sequence[FastinoField]) -> dict[str, Any]:
        """By field: a list of its values, or, for the dtype `str`, the best value or None."""
        result = {}
        for field in fields:
            values = [self._value(value, value.score) for value in self._distinct(instance[field.name])]
            result[field.name] = values if field.dtype == "list" else next(iter(values), None)
        return result

    def _distinct(self, ranked: Sequence[_Scored]) -> Sequence[_Scored]:
        """Unless spans are returned, only the best value of each text, ignoring case. ranked: best first."""
        best: dict[str, _Scored] = {}
        for value in ranked:
            best.setdefault(value.text.lower(), value)
        return ranked if self.spans else list(best.values())

    def _value(self, value: Entity | RelationArgument | FieldValue, score: float) -> Any:
        span = {"start": value.start, "end": value.end} if self.spans and value.start is not None else {}
        if not self.confidence and not span:
            return value.text
        return {"text": value.text, **({"confidence": score} if self.confidence else {}), **span}


async def _gliner2(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, FastinoRequest)
    context.choose_model(body.model)
    await gateway.served(context)
    schema, threshold = _schema(body), body.threshold
    options = ExtractionOptions(
        labels=_types(schema.entities)
        or (await entity_types_of_relations(gateway, context) if schema.relations else None),
        relations=_types(schema.relations) or None,
        classifications={name: _classification_options(given) for name, given in _classifications(schema).items()}
        or None,
        structures={name: _field_options(name, fields, threshold) for name, fields in _structures(schema).items()}
        or None,
        threshold=threshold if schema.entity_threshold is None else schema.entity_threshold,
        relation_threshold=threshold if schema.relation_threshold is None else schema.relation_threshold,
    )
    batch = extraction_of(body.text if isinstance(body.text, list) else [body.text], options)
    value_format = _ValueFormat(confidence=body.include_confidence, spans=body.include_spans)
    results = await asyncio.to_thread(_results, await gateway.run_batch(context, batch), schema, value_format)
    return json_response(FastinoResponse(results if isinstance(body.text, list) else results[0]))


def _schema(body: FastinoRequest) -> FastinoSchema:
    """What to extract. Raises InvalidField if the schema is empty or has a form that the task does not support, or for
    an unsupported option."""
    if not body.format_results:
        raise InvalidField("format_results: false is not supported", param="format_results")
    if isinstance(body.wanted, list) and body.task != "classify_text":
        schema = FastinoSchema(entities=body.wanted)
    elif isinstance(body.wanted, FastinoSchema) and body.task == "classify_text":
        if not body.wanted.categories:
            raise InvalidField("schema.categories: Field required", param="schema.categories")
        schema = FastinoSchema(classifications={_CLASSIFICATION: body.wanted.categories})
    elif isinstance(body.wanted, FastinoSchema) and body.task in ("schema", "extract_json"):
        schema = body.wanted
    else:
        raise InvalidField("schema: Input should be a list of entity types", param="schema")
    if not (schema.entities or schema.relations or schema.classifications or schema.structures):
        raise InvalidField("schema: needs entities, relations, classifications or structures", param="schema")
    return schema


def _types(types: EntityTypes | RelationTypes | None) -> Any:
    """Entity types or relations as `/v1/extract` takes them."""
    if not isinstance(types, Mapping):
        return types
    return {
        name: given if isinstance(given, str) else given.model_dump(exclude={"dtype"}) for name, given in types.items()
    }


def _classifications(schema: FastinoSchema) -> dict[str, FastinoClassification]:
    return {
        name: given if isinstance(given, FastinoClassification) else FastinoClassification(labels=given)
        for name, given in (schema.classifications or {}).items()
    }


def _classification_options(classification: FastinoClassification) -> ClassificationOptions:
    """A classification as `/v1/extract` takes it. With multi_label, all labels are requested, because `classes` returns
    the best label even if it does not reach `cls_threshold`."""
    options: ClassificationOptions = {"labels": classification.labels, "multi_label": classification.multi_label}
    return {**options, "threshold": 0.0} if classification.multi_label else options


def _structures(schema: FastinoSchema) -> dict[str, list[FastinoField]]:
    return {name: [FastinoField.of(field) for field in given] for name, given in (schema.structures or {}).items()}


def _field_options(structure: str, fields: Sequence[FastinoField], threshold: float) -> dict[str, FieldOptions]:
    """Fields as `/v1/extract` takes them. threshold: the default. Raises InvalidField for a repeated field."""
    options: dict[str, FieldOptions] = {}
    for field in fields:
        if field.name in options:
            param = f"schema.structures.{structure}"
            raise InvalidField(f"{param}: the field {field.name!r} is repeated", param=param)
        options[field.name] = {
            "type": "string" if field.dtype == "str" else "list",
            "description": field.description,
            "choices": field.choices,
            "threshold": threshold if field.threshold is None else field.threshold,
        }
    return options


def _results(answer: ExtractBatchResponse, schema: FastinoSchema, value_format: _ValueFormat) -> list[FastinoResult]:
    """The result of each text. Raises the error of the first text that failed."""
    return [_result(extraction, schema, value_format) for extraction in results_or_raise(answer)]


def _result(extraction: Extraction, schema: FastinoSchema, value_format: _ValueFormat) -> FastinoResult:
    """The result of a text, with every requested type, also types without predictions."""
    result: FastinoResult = {}
    if schema.entities:
        decoys = decoys_of(_types(schema.entities))
        entities: dict[str, list[Entity]] = {name: [] for name in schema.entities if name not in decoys}
        for entity in extraction.entities:
            entities.setdefault(entity.label, []).append(entity)  # a deny list has labels of its own
        values = {name: value_format.entities(of_type) for name, of_type in entities.items()}
        result["entities"] = {
            name: next(iter(type_values), None) if _dtype(schema, name) == "str" else type_values
            for name, type_values in values.items()
        }
    if schema.relations:
        relations: dict[str, list[Relation]] = {name: [] for name in schema.relations}
        for relation in extraction.relations:
            relations[relation.relation].append(relation)
        result["relation_extraction"] = {
            name: LazySequence(value_format.relation, of_type) for name, of_type in relations.items()
        }
    options = _classifications(schema)
    classes = {name: value_format.classes(scored, options[name]) for name, scored in extraction.classifications.items()}
    structures = {
        name: [value_format.instance(instance, fields) for instance in extraction.structures[name]]
        for name, fields in _structures(schema).items()
    }
    return cast(FastinoResult, {**result, **classes, **structures})


def _dtype(schema: FastinoSchema, entity_type: str) -> Dtype:
    options = schema.entities.get(entity_type) if isinstance(schema.entities, dict) else None
    own = options.dtype if isinstance(options, FastinoEntityOptions) else None
    return own or schema.entity_dtype


_SCHEMA = {"entities": {"person": "people", "organization": "companies"}, "relations": ["founded"]}
_FORMAT = WireFormat(
    error=DetailError,
    examples={FastinoRequest: {"task": "schema", "text": TEXT, "schema": _SCHEMA, "include_confidence": True}},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The only route, which gliner2's client calls."""
    extraction = _FORMAT.post(
        "/gliner-2",
        _gliner2,
        "fastino_gliner2",
        "Fastino's format, for entities, relations, classifications and structures",
        request=FastinoRequest,
        response=FastinoResponse,
        errors=extract_errors(),
    )
    return [extraction]
