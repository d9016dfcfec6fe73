"""The tools: their arguments, results and implementations. Independent of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter
from pydantic_core import from_json

from gliner_bento.errors import TooLarge
from gliner_bento.gateway import redaction
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.redact_types import Style
from gliner_bento.tasks.base import ExtractionWarning
from gliner_bento.tasks.classifications import ClassificationOptions, LabelScore
from gliner_bento.tasks.extraction import Entity, ExtractionOptions, ExtractResponse, Relation, extraction_of
from gliner_bento.tasks.fields import Names, Score, Strict
from gliner_bento.tasks.labels import Labels as LabelsWithOptions
from gliner_bento.tasks.lists import AllowList, DenyList, lists_of
from gliner_bento.tasks.structures import Instance, Structures


def _parsed(value: object) -> object:
    """A list or object that a language model has written as a string of JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError):
            return from_json(value)
    return value


Labels = Annotated[Names, Field(min_length=1), BeforeValidator(_parsed)]
EntityLabels = Annotated[LabelsWithOptions, Field(min_length=1), BeforeValidator(_parsed)]
_LABELS = (
    'Entity types, in any words: names, or {name: description}. With {name: {"returned": false}}, the type competes '
    "with the others, and its entities are left out."
)


class _TextArguments(Strict):
    """The argument that all tools have."""

    text: str = Field(description="The text, of any length.")


class _Arguments(_TextArguments):
    """The arguments of all tools in which a model reads the text."""

    model: str | None = Field(default=None, description="Name of the model that reads the text. Default: the first.")


class _ListArguments(_Arguments):
    """The arguments of the tools that find entities."""

    allow_list: Annotated[AllowList | None, BeforeValidator(_parsed)] = Field(
        default=None, description='Texts that are no entities: "Acme", or {"pattern": "ticket [0-9]+"}.'
    )
    deny_list: Annotated[DenyList | None, BeforeValidator(_parsed)] = Field(
        default=None,
        description='Texts that always are: "Bluebird", or {"value" or "pattern": "...", "label": "project"}.',
    )


class ExtractEntitiesArguments(_ListArguments):
    """Arguments of `extract_entities`."""

    labels: EntityLabels = Field(description=_LABELS, examples=[["person", "organization", "date"]])
    threshold: Score | None = Field(
        default=None, description="Lowest score of an entity, 0 to 1; lower finds more, with more errors."
    )


class ExtractRelationsArguments(ExtractEntitiesArguments):
    """Arguments of `extract_relations`."""

    relations: Labels = Field(
        description="Relation types, in any words: names, or {name: description}.", examples=[["works at", "founded"]]
    )
    relation_threshold: Score | None = Field(default=None, description="Lowest score of a relation, 0 to 1.")


class ClassifyArguments(_Arguments):
    """Arguments of `classify`."""

    labels: Labels = Field(
        description="What to choose from: names, or {name: description}.", examples=[["positive", "negative"]]
    )
    multi_label: bool = Field(default=False, description="Whether several labels may fit. Default: only the best one.")
    threshold: Score | None = Field(default=None, description="Lowest score of a label, 0 to 1.")


class StructuresArguments(_Arguments):
    """Arguments of `extract_structures`."""

    structures: Annotated[Structures, BeforeValidator(_parsed)] = Field(
        description="Kinds of records, by name, each with its fields: names, or {name: description}.",
        examples=[{"purchase": ["product", "price"]}],
    )
    threshold: Score | None = Field(default=None, description="Lowest score of a value, 0 to 1.")


class RedactArguments(_ListArguments):
    """Arguments of `redact`."""

    labels: EntityLabels | None = Field(
        default=None, description=f"{_LABELS} Default: those of personal data.", examples=[["person", "organization"]]
    )
    threshold: Score | None = Field(
        default=None, description="Lowest score of an entity, 0 to 1; lower misses less, and replaces more."
    )
    style: Style = Field(
        default="placeholder",
        description="What replaces an entity: a `placeholder` ([PERSON_1]), a `hash` ([PERSON_6ac3c336e4094835]), a "
        "`mask` (*****), or nothing (`remove`). Only the first two can be restored.",
    )
    mapping: str | None = Field(
        default=None, description="The `mapping` of an earlier result, unchanged: its values keep their placeholders."
    )


class RestoreArguments(_TextArguments):
    """Arguments of `restore`."""

    mapping: str = Field(description="The `mapping` that `redact` has returned, unchanged.")


@dataclass(frozen=True, slots=True)
class EntitiesResult:
    """The result of `extract_entities`."""

    entities: Annotated[Sequence[Entity], Field(description="In order of position.")]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why the result may be poor.")]


@dataclass(frozen=True, slots=True)
class RelationsResult(EntitiesResult):
    """The result of `extract_relations`."""

    relations: Annotated[Sequence[Relation], Field(description="From `head` to `tail`.")]


@dataclass(frozen=True, slots=True)
class LabelsResult:
    """The result of `classify`."""

    labels: Annotated[Sequence[LabelScore], Field(description="The labels that fit, best first.")]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why the result may be poor.")]


@dataclass(frozen=True, slots=True)
class StructuresResult:
    """The result of `extract_structures`."""

    structures: Annotated[Mapping[str, Sequence[Instance]], Field(description="By structure, its instances.")]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why the result may be poor.")]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replaced entity. start, end: offsets of the replacement in the redacted text."""

    start: int
    end: int
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class RedactedText:
    """The result of `redact`, without the original values."""

    text: str
    mapping: Annotated[str | None, Field(description="The sealed originals, for `restore`; null if it cannot restore.")]
    entities: Sequence[Replacement]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why entities may have been missed.")]


@dataclass(frozen=True, slots=True)
class RestoredText:
    """The result of `restore`."""

    text: str
    restored: Annotated[int, Field(description="Number of placeholders that were restored.")]
    ambiguous: Annotated[int, Field(description="Number of those that were left: without a number, or for several.")]
    unknown: Annotated[Sequence[str], Field(description="Placeholders that the mapping does not have.")]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. call: its implementation, which takes validated `arguments` and returns a `result`."""

    name: str
    title: str
    description: str
    arguments: type[_TextArguments]
    result: type[Any]
    call: Callable[[Gateway, Context, Any], Awaitable[Any]]

    async def run(self, gateway: Gateway, context: Context, arguments: Mapping[str, Any]) -> Any:
        """Call the tool. Raises ValidationError for wrong arguments, and the gateway's errors."""
        validated = self.arguments.model_validate(dict(arguments))
        if isinstance(validated, _Arguments):
            context.choose_model(validated.model)
        return await self.call(gateway, context, validated)

    def input_schema(self, models: Sequence[str]) -> dict[str, Any]:
        """The JSON schema of the arguments. It has the argument `model` only if there are several `models`."""
        schema = self.arguments.model_json_schema()
        model = schema["properties"].pop("model", None)
        if model and len(models) > 1:
            schema["properties"]["model"] = {"type": "string", "enum": models, "description": model["description"]}
        return schema

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of the result."""
        return TypeAdapter(self.result).json_schema()


async def _extract(gateway: Gateway, context: Context, arguments: ExtractEntitiesArguments) -> ExtractResponse:
    options = ExtractionOptions(
        labels=arguments.labels,
        threshold=arguments.threshold,
        allow_list=arguments.allow_list,
        deny_list=arguments.deny_list,
    )
    if isinstance(arguments, ExtractRelationsArguments):
        options = replace(options, relations=arguments.relations, relation_threshold=arguments.relation_threshold)
    return await gateway.run(context, extraction_of([arguments.text], options))


async def _entities(gateway: Gateway, context: Context, arguments: ExtractEntitiesArguments) -> EntitiesResult:
    answer = await _extract(gateway, context, arguments)
    return EntitiesResult(answer.entities, answer.warnings)


async def _relations(gateway: Gateway, context: Context, arguments: ExtractRelationsArguments) -> RelationsResult:
    answer = await _extract(gateway, context, arguments)
    return RelationsResult(answer.entities, answer.warnings, answer.relations)


async def _classify(gateway: Gateway, context: Context, arguments: ClassifyArguments) -> LabelsResult:
    classification: ClassificationOptions = {
        "labels": arguments.labels,
        "multi_label": arguments.multi_label,
        "threshold": arguments.threshold,
    }
    options = ExtractionOptions(classifications={"labels": classification})
    answer = await gateway.run(context, extraction_of([arguments.text], options))
    return LabelsResult(answer.classifications["labels"].labels, answer.warnings)


async def _structures(gateway: Gateway, context: Context, arguments: StructuresArguments) -> StructuresResult:
    options = ExtractionOptions(structures=arguments.structures, threshold=arguments.threshold)
    answer = await gateway.run(context, extraction_of([arguments.text], options))
    return StructuresResult(answer.structures, answer.warnings)


async def _redact(gateway: Gateway, context: Context, arguments: RedactArguments) -> RedactedText:
    options = redaction.RedactionOptions(
        labels=arguments.labels,
        threshold=arguments.threshold,
        style=arguments.style,
        lists=lists_of(arguments.allow_list, arguments.deny_list),
    )
    result, _ = await redaction.redact(
        gateway, context, [arguments.text], options, mapping=arguments.mapping, single=True
    )
    (text,) = result.texts
    entities = [Replacement(one.redacted_start, one.redacted_end, one.label, one.score) for one in result.entities]
    max_chars = 2 * (await gateway.served(context)).limits.max_text_chars
    if len(text) + sum(len(entity.label) for entity in entities) > max_chars:
        raise TooLarge(f"labels: the result would have more than {max_chars} characters (twice max_text_chars)")
    return RedactedText(text, result.mapping, entities, result.warnings)


async def _restore(gateway: Gateway, context: Context, arguments: RestoreArguments) -> RestoredText:
    gateway.check_text(arguments.text)
    mapping = (await redaction.mappings_of(gateway, context)).open(arguments.mapping)
    (text,), _, restorer = await asyncio.to_thread(
        redaction.restore, [arguments.text], mapping, "auto", gateway.options, partial=False
    )
    return RestoredText(text, **restorer.counts.shown())


TOOLS = (
    Tool(
        "extract_entities",
        "Extract entities",
        "Find the entities of the given types in a text: people, companies, dates, products, or any other type that "
        "you name. Returns each with its type, offsets and score. Exact and cheap: prefer it to reading long texts.",
        ExtractEntitiesArguments,
        EntitiesResult,
        _entities,
    ),
    Tool(
        "extract_relations",
        "Extract relations",
        "Find the entities of the given types in a text, and the relations of the given types between them, such as "
        "who works at which company.",
        ExtractRelationsArguments,
        RelationsResult,
        _relations,
    ),
    Tool(
        "classify",
        "Classify a text",
        "Choose the label that fits a text as a whole, such as its sentiment, topic or intent, from labels that you "
        "name; or all labels that fit. Returns each with its score. Needs a model that classifies.",
        ClassifyArguments,
        LabelsResult,
        _classify,
    ),
    Tool(
        "extract_structures",
        "Extract records",
        "Find records in a text, such as purchases with their products and prices. You name the kinds of records and "
        "their fields. Returns the values of each record with their scores. Needs a model with structures.",
        StructuresArguments,
        StructuresResult,
        _structures,
    ),
    Tool(
        "redact",
        "Redact a text",
        "Replace personal data and secrets, or the entities of the given types, in a text before it is stored or "
        "passed on. Equal values get equal placeholders, which `restore` turns into the originals again. A model finds "
        "names, so it may miss some; patterns find numbers, addresses and keys with a fixed form.",
        RedactArguments,
        RedactedText,
        _redact,
    ),
    Tool(
        "restore",
        "Restore a text",
        "Put the originals back into a text with placeholders of `redact`, also one that has been edited or written "
        "since. Placeholders that are unknown or ambiguous stay, and are reported.",
        RestoreArguments,
        RestoredText,
        _restore,
    ),
)
