"""The tools: their arguments and results, and what they call. Knows no protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from gliner_bento.errors import TooLarge
from gliner_bento.files.redaction.redact import substituted
from gliner_bento.files.redaction.spans import LabeledSpan
from gliner_bento.files.redaction.styles import tag
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.tasks.base import ExtractionWarning
from gliner_bento.tasks.classifications import ClassificationOptions, LabelScore
from gliner_bento.tasks.extraction import Entity, ExtractionOptions, ExtractResponse, Relation, extraction_of
from gliner_bento.tasks.fields import Names, Score, Strict
from gliner_bento.tasks.structures import Instance, Structures

Labels = Annotated[Names, Field(min_length=1)]
_LABELS = "Entity types, in any words: names, or {name: description}."


class _Arguments(Strict):
    """The arguments that all tools have."""

    text: str = Field(description="The text, of any length.")
    model: str | None = Field(default=None, description="Which model reads it. Default: the first.")


class ExtractEntitiesArguments(_Arguments):
    """Arguments of `extract_entities`."""

    labels: Labels = Field(description=_LABELS, examples=[["person", "organization", "date"]])
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
    multi_label: bool = Field(default=False, description="Whether several labels may fit. Default: the best one.")
    threshold: Score | None = Field(default=None, description="Lowest score of a label, 0 to 1.")


class StructuresArguments(_Arguments):
    """Arguments of `extract_structures`."""

    structures: Structures = Field(
        description="Kinds of records, by name, each with its fields: names, or {name: description}.",
        examples=[{"purchase": ["product", "price"]}],
    )
    threshold: Score | None = Field(default=None, description="Lowest score of a value, 0 to 1.")


class RedactArguments(ExtractEntitiesArguments):
    """Arguments of `redact`."""

    replacement: Annotated[str, Field(max_length=100)] = Field(
        default="<LABEL>", description="What replaces an entity; LABEL stands for its type: <PHONE_NUMBER>."
    )


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

    labels: Annotated[Sequence[LabelScore], Field(description="Those that fit, best first.")]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why the result may be poor.")]


@dataclass(frozen=True, slots=True)
class StructuresResult:
    """The result of `extract_structures`."""

    structures: Annotated[Mapping[str, Sequence[Instance]], Field(description="The instances of each, by name.")]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why the result may be poor.")]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replaced entity. start, end: of its replacement in the redacted text."""

    start: int
    end: int
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class RedactedText:
    """The result of `redact`. The original values are not in it."""

    text: str
    entities: Sequence[Replacement]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why entities may have been missed.")]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. call: takes validated arguments."""

    name: str
    title: str
    description: str
    arguments: type[_Arguments]
    result: type[Any]
    call: Callable[[Gateway, Any], Awaitable[Any]]

    async def run(self, gateway: Gateway, arguments: Mapping[str, Any]) -> Any:
        """The result. Raises ValidationError for wrong arguments, and what the gateway raises."""
        given = self.arguments.model_validate(dict(arguments))
        return await self.call(await gateway.of(given.model), given)

    def input_schema(self, models: Sequence[str]) -> dict[str, Any]:
        """The JSON schema of the arguments; `model` is one of them where there are several models."""
        schema = self.arguments.model_json_schema()
        model = schema["properties"].pop("model")
        if len(models) > 1:
            schema["properties"]["model"] = {"type": "string", "enum": models, "description": model["description"]}
        return schema

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of the result."""
        return TypeAdapter(self.result).json_schema()


async def _extracted(
    gateway: Gateway, asked: ExtractEntitiesArguments, *, recognizers: bool = False
) -> ExtractResponse:
    options = ExtractionOptions(labels=asked.labels, threshold=asked.threshold, recognizers=recognizers)
    if isinstance(asked, ExtractRelationsArguments):
        options = replace(options, relations=asked.relations, relation_threshold=asked.relation_threshold)
    return await gateway.run(extraction_of([asked.text], options))


async def _entities(gateway: Gateway, asked: ExtractEntitiesArguments) -> EntitiesResult:
    answer = await _extracted(gateway, asked)
    return EntitiesResult(answer.entities, answer.warnings)


async def _relations(gateway: Gateway, asked: ExtractRelationsArguments) -> RelationsResult:
    answer = await _extracted(gateway, asked)
    return RelationsResult(answer.entities, answer.warnings, answer.relations)


async def _classify(gateway: Gateway, asked: ClassifyArguments) -> LabelsResult:
    classification: ClassificationOptions = {
        "labels": asked.labels,
        "multi_label": asked.multi_label,
        "threshold": asked.threshold,
    }
    options = ExtractionOptions(classifications={"labels": classification})
    answer = await gateway.run(extraction_of([asked.text], options))
    return LabelsResult(answer.classifications["labels"].labels, answer.warnings)


async def _structures(gateway: Gateway, asked: StructuresArguments) -> StructuresResult:
    options = ExtractionOptions(structures=asked.structures, threshold=asked.threshold)
    answer = await gateway.run(extraction_of([asked.text], options))
    return StructuresResult(answer.structures, answer.warnings)


async def _redact(gateway: Gateway, asked: RedactArguments) -> RedactedText:
    answer = await _extracted(gateway, asked, recognizers=True)
    spans = [LabeledSpan(one.start, one.end, one.label) for one in answer.entities]  # in order, without overlaps
    redactions = ((span, asked.replacement.replace("LABEL", tag(span.label))) for span in spans)
    limit = 2 * gateway.options.max_text_chars
    try:
        result = substituted(asked.text, redactions, limit - sum(len(span.label) for span in spans))
    except TooLarge:
        text = f"replacement: the result would have more than {limit} characters (twice max_text_chars)"
        raise TooLarge(text) from None
    replaced = [
        Replacement(put.start, put.end, put.label, entity.score)
        for put, entity in zip(result.replacements, answer.entities, strict=True)
    ]
    return RedactedText(result.text, replaced, answer.warnings)


TOOLS = (
    Tool(
        "extract_entities",
        "Extract entities",
        "Find the entities of the given types in a text: people, companies, dates, products, or any other type that "
        "you name. Returns each with its type, characters and score. Exact and cheap: prefer it to reading long texts.",
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
        "Find records in a text, such as the purchases with their products and prices, from kinds of records and "
        "fields that you name. Returns the values of each record with their scores. Needs a model with structures.",
        StructuresArguments,
        StructuresResult,
        _structures,
    ),
    Tool(
        "redact",
        "Redact a text",
        "Replace the entities of the given types in a text, for example names and phone numbers, before it is stored "
        "or passed on. A model finds them, so it may miss some; numbers and addresses with a form are found by that.",
        RedactArguments,
        RedactedText,
        _redact,
    ),
)
