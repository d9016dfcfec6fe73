"""Fastino's GLiNER2 API, as the client of gliner2 2.1.0 calls it: `POST /gliner-2`, for entities, relations,
classifications and structures.

A request for relations alone names no entity types. GLiNER2 models relate any spans; the relations of other models are
between entities of the setting `fastino_labels`.
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

from gliner_bento.errors import InvalidField, from_detail
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import DetailError
from gliner_bento.gateway.wire_format import ModelName, WireFormat, extract_errors
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
)
from gliner_bento.tasks.fields import Elements, Name, Score, Strict
from gliner_bento.tasks.structures import FieldOptions, FieldValue, Instance

_CLASSIFICATION = "classification"
"""The name in the answer of the task classify_text, which has one classification."""

Values = Literal["list", "str"]
_Found = TypeVar("_Found", Entity, FieldValue)


class FastinoRelationOptions(Strict):
    """A relation type."""

    description: Name | None = None
    threshold: Score | None = None


class FastinoEntityOptions(FastinoRelationOptions):
    """An entity type."""

    dtype: Values | None = None


def _by_type(value: object) -> str:
    return "str" if isinstance(value, str) else "dict[options]"


EntityTypes = Elements[
    list[Name]
    | dict[
        Name,
        Annotated[
            Annotated[Name, Tag("str")] | Annotated[FastinoEntityOptions, Tag("dict[options]")], Discriminator(_by_type)
        ],
    ]
]
RelationTypes = Elements[
    list[Name]
    | dict[
        Name,
        Annotated[
            Annotated[Name, Tag("str")] | Annotated[FastinoRelationOptions, Tag("dict[options]")],
            Discriminator(_by_type),
        ],
    ]
]


_Classes = Elements[list[Name] | dict[Name, Name]]


class FastinoClassification(Strict):
    """A classification with options."""

    labels: _Classes
    multi_label: bool = False
    cls_threshold: Score = 0.5
    top_k: Annotated[int, Field(ge=1)] | None = None


class FastinoField(Strict):
    """A field of a structure."""

    name: Name
    dtype: Values = "list"
    choices: list[Name] | None = None
    description: Name | None = None
    threshold: Score | None = None

    @classmethod
    def of(cls, given: str | FastinoField) -> FastinoField:
        """A field, or its short form `name::str::[choice|choice]::description`: all but the name are optional, in any
        order. One with choices has one value, unless it says `list`."""
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


def _kind_of_task(value: object) -> str:
    return "dict[options]" if isinstance(value, dict) and "labels" in value else "list[labels]"


class FastinoSchema(Strict):
    """What to extract, for the task `schema`."""

    entities: EntityTypes | None = Field(default=None, description="Names, or {name: description}, or with options.")
    entity_dtype: Values = Field(default="list", description="str: the entity with the highest score, or null.")
    entity_threshold: Score | None = Field(default=None, description="Default: the request's.")
    relations: RelationTypes | None = Field(default=None, description="As entities.")
    relation_threshold: Score | None = Field(default=None, description="Default: the request's.")
    classifications: (
        Elements[
            dict[
                Name,
                Annotated[
                    Annotated[_Classes, Tag("list[labels]")] | Annotated[FastinoClassification, Tag("dict[options]")],
                    Discriminator(_kind_of_task),
                ],
            ]
        ]
        | None
    ) = Field(default=None, description="By name: labels, or {label: description}, or with options.")
    categories: _Classes | None = Field(default=None, description="Labels, for the task classify_text.")
    structures: (
        Elements[
            dict[
                Name,
                list[
                    Annotated[
                        Annotated[Name, Field(pattern="^[^:]"), Tag("str")]
                        | Annotated[FastinoField, Tag("dict[options]")],
                        Discriminator(_by_type),
                    ]
                ],
            ]
        ]
        | None
    ) = Field(default=None, description="Fields by name: `name::str::[choice|choice]::description`, or with options.")


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
        description="A list of entity types for the task extract_entities; a schema's structures for "
        "extract_json; else a schema.",
    )
    threshold: Score = 0.5
    include_confidence: bool = False
    include_spans: bool = False
    format_results: bool = Field(default=True, description="false is refused.")
    model: ModelName = None

    @model_validator(mode="before")
    @classmethod
    def _with_schema(cls, body: Any) -> Any:
        """The schema of the task extract_json has only structures, without their name."""
        if isinstance(body, dict) and body.get("task") == "extract_json":
            return {**body, "schema": {"structures": body.get("schema")}}
        return body


class FastinoResult(TypedDict, total=False):
    """What was extracted from a text, by type: strings, or objects if confidences or spans were asked for."""

    entities: dict[str, Any]
    relation_extraction: dict[str, Sequence[Any]]
    classification: Any


@dataclass(frozen=True, slots=True)
class FastinoResponse:
    """The answer of `POST /gliner-2`; a list for a list of texts."""

    result: FastinoResult | list[FastinoResult]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The form of the values in an answer."""

    confidence: bool
    spans: bool

    def entities(self, entities: Sequence[Entity]) -> Sequence[Any]:
        """Best first."""
        ranked = sorted(entities, key=lambda entity: (-entity.score, entity.start))
        return LazySequence(lambda entity: self._value(entity, entity.score), self._distinct(ranked))

    def relation(self, relation: Relation) -> Any:
        """The two ends, each with the relation's score."""
        head, tail = (self._value(end, relation.score) for end in (relation.head, relation.tail))
        return {"head": head, "tail": tail} if self.confidence or self.spans else [head, tail]

    def classes(self, result: ClassificationResult, asked: FastinoClassification) -> Any:
        """The best label; with multi_label, those above the threshold, or else the best, in the request's order; with
        top_k, best first."""
        order = list(asked.labels)
        fitting = [one for one in result.labels if one.score >= asked.cls_threshold] or list(result.labels[:1])
        fitting = fitting[: asked.top_k] if asked.top_k else sorted(fitting, key=lambda one: order.index(one.label))
        values = [{"label": one.label, "confidence": one.score} if self.confidence else one.label for one in fitting]
        return values if asked.multi_label else next(iter(values), None)

    def instance(self, instance: Instance, fields: Sequence[FastinoField]) -> dict[str, Any]:
        """The values of each field; of a field that is no list, the best value."""
        values = {}
        for one in fields:
            found = [self._value(value, value.score) for value in self._distinct(instance[one.name])]
            values[one.name] = found if one.dtype == "list" else next(iter(found), None)
        return values

    def _distinct(self, ranked: Sequence[_Found]) -> Sequence[_Found]:
        """Without spans, repetitions of a text count once, whatever their case."""
        best: dict[str, _Found] = {}
        for one in ranked:
            best.setdefault(one.text.lower(), one)
        return ranked if self.spans else list(best.values())

    def _value(self, one: Entity | RelationArgument | FieldValue, score: float) -> Any:
        place = {"start": one.start, "end": one.end} if self.spans and one.start is not None else {}
        if not self.confidence and not place:
            return one.text
        return {"text": one.text, **({"confidence": score} if self.confidence else {}), **place}


async def _gliner2(gateway: Gateway, request: Request) -> Response:
    asked = FastinoRequest.model_validate_json(await request.body() or b"{}")
    gateway, schema = await gateway.of(asked.model), _schema(asked)
    options = ExtractionOptions(
        labels=_types(schema.entities) or (await _related(gateway) if schema.relations else None),
        relations=_types(schema.relations) or None,
        classifications={name: _asked_of(one) for name, one in _tasks(schema).items()} or None,
        structures={name: _fields(name, one, asked.threshold) for name, one in _structures(schema).items()} or None,
        threshold=asked.threshold if schema.entity_threshold is None else schema.entity_threshold,
        relation_threshold=asked.threshold if schema.relation_threshold is None else schema.relation_threshold,
    )
    batch = extraction_of(asked.text if isinstance(asked.text, list) else [asked.text], options)
    shape = _Shape(asked.include_confidence, asked.include_spans)
    results = await asyncio.to_thread(_results, await gateway.run_batch(batch), schema, shape)
    return json_response(FastinoResponse(results if isinstance(asked.text, list) else results[0]))


async def _related(gateway: Gateway) -> list[str] | None:
    """The entity types between which relations are extracted if the request names none; None: the model needs none."""
    family = (await gateway.models.default.info()).family
    return None if family.startswith("GLiNER2") else list(gateway.options.fastino_labels)


def _schema(asked: FastinoRequest) -> FastinoSchema:
    """What to extract. Raises InvalidField for what is not supported, and for nothing."""
    if not asked.format_results:
        raise InvalidField("format_results: false is not supported", param="format_results")
    if isinstance(asked.wanted, list) and asked.task != "classify_text":
        schema = FastinoSchema(entities=asked.wanted)
    elif isinstance(asked.wanted, FastinoSchema) and asked.task == "classify_text":
        if not asked.wanted.categories:
            raise InvalidField("schema.categories: Field required", param="schema.categories")
        schema = FastinoSchema(classifications={_CLASSIFICATION: asked.wanted.categories})
    elif isinstance(asked.wanted, FastinoSchema) and asked.task in ("schema", "extract_json"):
        schema = asked.wanted
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
        name: given if isinstance(given, str) else {"description": given.description, "threshold": given.threshold}
        for name, given in types.items()
    }


def _tasks(schema: FastinoSchema) -> dict[str, FastinoClassification]:
    return {
        name: given if isinstance(given, FastinoClassification) else FastinoClassification(labels=given)
        for name, given in (schema.classifications or {}).items()
    }


def _asked_of(asked: FastinoClassification) -> ClassificationOptions:
    """Requests all scores, because the best label is returned whatever its score."""
    options: ClassificationOptions = {"labels": asked.labels, "multi_label": asked.multi_label}
    return {**options, "threshold": 0.0} if asked.multi_label else options


def _structures(schema: FastinoSchema) -> dict[str, list[FastinoField]]:
    return {name: [FastinoField.of(one) for one in given] for name, given in (schema.structures or {}).items()}


def _fields(structure: str, fields: Sequence[FastinoField], threshold: float) -> dict[str, FieldOptions]:
    """Fields as `/v1/extract` takes them. Raises InvalidField for one that is repeated."""
    options: dict[str, FieldOptions] = {}
    for one in fields:
        if one.name in options:
            param = f"schema.structures.{structure}"
            raise InvalidField(f"{param}: the field {one.name!r} is repeated", param=param)
        options[one.name] = {
            "type": "string" if one.dtype == "str" else "list",
            "description": one.description,
            "choices": one.choices,
            "threshold": threshold if one.threshold is None else one.threshold,
        }
    return options


def _results(answer: ExtractBatchResponse, schema: FastinoSchema, shape: _Shape) -> list[FastinoResult]:
    """Raises a text's error."""
    for one in answer.results:
        if one.error:
            raise from_detail(one.error)
    return [_result(one.result or Extraction(()), schema, shape) for one in answer.results]


def _result(found: Extraction, schema: FastinoSchema, shape: _Shape) -> FastinoResult:
    """Every type that was asked for is present, and empty if nothing was extracted."""
    result: FastinoResult = {}
    if schema.entities:
        entities: dict[str, list[Entity]] = {name: [] for name in schema.entities}
        for entity in found.entities:
            entities[entity.label].append(entity)
        values = {name: shape.entities(of_type) for name, of_type in entities.items()}
        result["entities"] = {
            name: next(iter(of_type), None) if _dtype(schema, name) == "str" else of_type
            for name, of_type in values.items()
        }
    if schema.relations:
        relations: dict[str, list[Relation]] = {name: [] for name in schema.relations}
        for relation in found.relations:
            relations[relation.relation].append(relation)
        result["relation_extraction"] = {
            name: LazySequence(shape.relation, of_name) for name, of_name in relations.items()
        }
    tasks = _tasks(schema)
    classes = {name: shape.classes(one, tasks[name]) for name, one in found.classifications.items()}
    structures = {
        name: [shape.instance(one, fields) for one in found.structures[name]]
        for name, fields in _structures(schema).items()
    }
    return cast(FastinoResult, {**result, **classes, **structures})


def _dtype(schema: FastinoSchema, name: str) -> Values:
    given = schema.entities.get(name) if isinstance(schema.entities, dict) else None
    own = given.dtype if isinstance(given, FastinoEntityOptions) else None
    return own or schema.entity_dtype


_SCHEMA = {"entities": {"person": "people", "organization": "companies"}, "relations": ["founded"]}
_FORMAT = WireFormat(
    error=DetailError,
    examples={FastinoRequest: {"task": "schema", "text": TEXT, "schema": _SCHEMA, "include_confidence": True}},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The only route that gliner2's client calls."""
    extraction = _FORMAT.post(
        "/gliner-2",
        _gliner2,
        "fastino_gliner2",
        "Fastino's format, for entities, relations, classifications and structures",
        request=FastinoRequest,
        answer=FastinoResponse,
        errors=extract_errors(404),
    )
    return [extraction]
