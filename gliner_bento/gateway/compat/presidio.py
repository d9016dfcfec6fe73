"""The wire formats of Presidio's analyzer and anonymizer (2.2.366): two servers of Presidio, here at one address.

The model and this server's recognizers together replace Presidio's recognizers. Unknown fields are ignored, as in
Presidio, because examples in its documentation have some. Intended differences: invalid requests are answered with 400,
not 500; returned entities overlap only if one reaches beyond the other; `encrypt` and `/deanonymize` are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pydantic import Field, RootModel, field_validator
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField, MalformedRequest
from gliner_bento.gateway import request_id
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response, query_parameter
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.expressions import ExpressionRunner
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.gateway.shared_routes import HEALTH, MessageError
from gliner_bento.gateway.wire_format import ModelName, WireFormat, extract_errors
from gliner_bento.paragraphs import paragraphs
from gliner_bento.privacy.anonymize import OPERATORS, AnonymizedText, Detected, Operator, anonymize
from gliner_bento.privacy.lists import NO_LISTS, Listed
from gliner_bento.privacy.recognizers.base import Match, Rule
from gliner_bento.privacy.recognizers.expressions import FLAGS, AdHocRule, Expression, ExpressionError, Spans, deny_list
from gliner_bento.privacy.recognizers.find import RULES, candidates
from gliner_bento.privacy.recognizers.labels import DEFAULT_ENTITIES, PRESIDIO_LABELS, is_for_model, label_of
from gliner_bento.tasks.extraction import (
    Entity,
    Extraction,
    ExtractionOptions,
    SourcedEntity,
    extraction_of,
    results_or_raise,
)
from gliner_bento.tasks.fields import Elements, Lenient, Name, Score
from gliner_bento.tasks.recognition import MatchMerger, enabled, recognizers_to_run

RECOGNIZER = "GLiNERRecognizer"
_ONLY_RECOGNIZED = ("MAC_ADDRESS", "MEDICAL_RECORD_NUMBER", "US_HEALTH_INSURANCE_MEMBER_ID")
"""Entity types that recognizers look for, but not the model, if neither request nor `presidio_entities` names types."""


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of this format; docs/settings.md describes each."""

    presidio_labels: Sequence[str]
    presidio_entities: Sequence[str]
    presidio_min_score: float


class AdHocPattern(Lenient):
    """A pattern of an ad-hoc recognizer."""

    name: str = ""
    regex: str
    score: Score


class AdHocRecognizerFields(Lenient):
    """A recognizer that a request brings, with the fields of Presidio's `PatternRecognizer`."""

    name: str = "AdHocRecognizer"
    supported_language: str = "en"
    supported_entity: Name | None = None
    supported_entities: Elements[list[Name]] | None = None
    patterns: Elements[list[AdHocPattern]] | None = None
    deny_list: Elements[list[Name]] | None = None
    deny_list_score: Score = 1.0
    context: Elements[list[str]] | None = None
    global_regex_flags: int | None = None

    @property
    def entity(self) -> str | None:
        """The entity type that it detects."""
        return self.supported_entity or next(iter(self.supported_entities or ()), None)


class AnalyzeRequest(Lenient):
    """The body of `POST /analyze`."""

    text: str | Elements[list[str]]
    language: Name = Field(description="Required, as in Presidio. Only selects ad-hoc recognizers by language.")
    entities: Elements[list[Name]] | None = Field(default=None, description="Any names, not only /supportedentities.")
    score_threshold: Score | None = None
    return_decision_process: bool | Literal[0, 1] | None = None
    ad_hoc_recognizers: Elements[list[AdHocRecognizerFields]] | None = Field(
        default=None, description="Recognizers of this request: patterns, or a list of texts to detect (deny_list)."
    )
    allow_list: Elements[list[str]] | None = Field(
        default=None, description="Texts that are not returned; with allow_list_match `regex`, patterns of such texts."
    )
    allow_list_match: Literal["exact", "regex"] | None = "exact"
    regex_flags: int | None = Field(default=None, description="Flags of the patterns in allow_list, as in Python's re.")
    context: Elements[list[str]] | None = Field(default=None, description="Words that count as near every match.")
    model: ModelName = None
    correlation_id: str | None = Field(default=None, description="Becomes the request's id if it is valid as one.")


@dataclass(frozen=True, slots=True)
class AnalysisExplanation:
    """Why an entity was returned, with Presidio's fields."""

    recognizer: str
    original_score: float
    score: float
    textual_explanation: str
    pattern_name: str | None = None
    pattern: str | None = None
    score_context_improvement: float = 0
    supportive_context_word: str = ""
    validation_result: bool | None = None
    regex_flags: int | None = None


@dataclass(frozen=True, slots=True)
class RecognitionMetadata:
    """The recognizer that detected an entity: GLiNERRecognizer is the model."""

    recognizer_name: str


@dataclass(frozen=True, slots=True)
class RecognizerResult:
    """An entity; Presidio's format does not repeat its text."""

    entity_type: str
    start: int
    end: int
    score: float
    analysis_explanation: AnalysisExplanation | None
    recognition_metadata: RecognitionMetadata


class AnalyzeResponse(RootModel[list[RecognizerResult] | list[list[RecognizerResult]]]):
    """The answer of `POST /analyze`: the entities of the text, or a list of them for each of several texts."""


class AnalyzerResult(Lenient):
    """A detected entity to anonymize."""

    start: int
    end: int
    entity_type: Name
    score: float


class AnonymizeRequest(Lenient):
    """The body of `POST /anonymize`."""

    text: str
    analyzer_results: Elements[list[AnalyzerResult]]
    anonymizers: Elements[dict[str, Operator]] | None = Field(
        default=None, description="Operators by entity type; DEFAULT applies to all others, and is replace by default."
    )

    @field_validator("anonymizers", mode="before")
    @classmethod
    def _without_custom(cls, anonymizers: Any) -> Any:
        """Raise MalformedRequest for `custom`, whose parameter is a function: Presidio answers 400, not 422."""
        for name, operator in anonymizers.items() if isinstance(anonymizers, dict) else ():
            if isinstance(operator, dict) and operator.get("type") == "custom":
                raise MalformedRequest(f"anonymizers.{name[:50]}: custom is not supported", param="anonymizers")
        return anonymizers


class Names(RootModel[list[str]]):
    """A list of names."""


async def _analyze(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, AnalyzeRequest)
    context.choose_model(body.model)
    options = (await gateway.served(context)).limits
    texts = body.text if isinstance(body.text, list) else [body.text]
    gateway.check_texts(texts, options)
    names = (
        body.entities
        or options.of_format(Options).presidio_entities
        or (*DEFAULT_ENTITIES, *sorted(_configured(options)))
    )
    labels = _labels_for_model(names, body, options)
    recognition, allow_list = _Recognition(body, options, names), _AllowList(body, gateway.expressions, context.tenant)
    await allow_list.check()
    spans = await recognition.search(texts, gateway.expressions, context.tenant)
    listed = await gateway.listed(context, NO_LISTS, texts)
    extractions = await _extract(gateway, context, body, texts, labels, listed)
    merged = await asyncio.to_thread(lambda: [*map(recognition.merged, texts, spans, extractions, listed)])
    kept = await allow_list.without_allowed([entities for entities, _ in merged], listed)
    make_result = partial(_result, labels=labels, explained=bool(body.return_decision_process))
    results = [
        LazySequence(partial(make_result, matches=matches), entities)
        for entities, (_, matches) in zip(kept, merged, strict=True)
    ]
    return json_response(results if isinstance(body.text, list) else results[0])


def _labels_for_model(names: Iterable[str], body: AnalyzeRequest, options: GatewayOptions) -> dict[str, str]:
    """The labels that the model is asked for, by entity type: those of `presidio_labels`, and of the types that no
    recognizer finds, of the server or of the request. Two types may have one label; then only the first is asked for.
    """
    configured = _configured(options)
    own = {str(recognizer.entity) for recognizer in body.ad_hoc_recognizers or ()}
    recognizers = {*enabled(options.recognizers), *own.difference(PRESIDIO_LABELS)}
    first_names: dict[str, str] = {}  # by label
    for name in names:
        if name in configured or is_for_model(name, recognizers):
            first_names.setdefault(label_of(name, configured), name)
    return {name: label for label, name in first_names.items()}


async def _extract(
    gateway: Gateway,
    context: Context,
    body: AnalyzeRequest,
    texts: Sequence[str],
    labels: dict[str, str],
    listed: Sequence[Listed],
) -> list[Extraction]:
    """The model's entities in each text, before `score_threshold` applies. One that runs over an empty line is cut
    there: callers redact what they get. Raises the error of the first text that failed."""
    if not labels:
        return [Extraction(()) for _ in texts]
    lowest = (await gateway.served(context)).limits.of_format(Options).presidio_min_score
    options = ExtractionOptions(labels=labels, threshold=lowest, across_empty_lines=True)
    batch = extraction_of(texts, options, request_id=request_id.valid(body.correlation_id))
    results = results_or_raise(await gateway.run_batch(context, replace(batch, listed=listed)))
    return [
        replace(result, entities=[part for entity in result.entities for part in _cut(text, entity)])
        for text, result in zip(texts, results, strict=True)
    ]


def _cut(text: str, entity: Entity) -> Iterator[Entity]:
    return (replace(entity, start=s, end=e, text=text[s:e]) for s, e in paragraphs(text, entity.start, entity.end))


_Matches = Mapping[tuple[int, int], Match]
"""Matches of recognizers, by their start and end."""


class _Recognition:
    """Applies the server's recognizers and a request's ad-hoc recognizers to texts. names: the entity types to look
    for. Raises `InvalidField` for a wrong ad-hoc recognizer."""

    def __init__(self, body: AnalyzeRequest, options: GatewayOptions, names: Sequence[str]) -> None:
        own = options.of_format(Options)
        uses_defaults = not (body.entities or own.presidio_entities)
        wanted = {*names, *(_ONLY_RECOGNIZED if uses_defaults else ())}
        self._body, self._regions, self._min_score = body, options.phone_regions, own.presidio_min_score
        self._types = [name for name in enabled(options.recognizers) if name in wanted]
        self._context = " ".join(body.context or ()).lower()
        self._ad_hoc = {  # by the field with the expression
            path: rule
            for index, fields in enumerate(body.ad_hoc_recognizers or ())
            if fields.supported_language == body.language and (not body.entities or fields.entity in body.entities)
            for path, rule in _ad_hoc_rules(fields, f"ad_hoc_recognizers.{index}")
        }
        self._labels = {name: name for name in (*self._types, *(rule.rule.entity for rule in self._ad_hoc.values()))}

    async def search(self, texts: Sequence[str], runner: ExpressionRunner, tenant: Tenant) -> list[list[Spans]]:
        """For each text, what each expression of the ad-hoc recognizers finds. Raises `InvalidField`."""
        with _as_invalid_field("ad_hoc_recognizers", list(self._ad_hoc)):
            return await runner.spans(tenant, [rule.expression for rule in self._ad_hoc.values()], texts)

    def merged(
        self, text: str, found: Sequence[Spans], extraction: Extraction, listed: Listed
    ) -> tuple[Sequence[SourcedEntity], _Matches]:
        """The entities of the answer for a text, from the model, from recognizers and from the operator's deny lists;
        and the matches of the last two. found: what `search` has found in the text."""
        matches = [
            match
            for rule, spans in zip(self._ad_hoc.values(), found, strict=True)
            for match in rule.matches(spans, text, self._context)
        ]
        matches += candidates(
            text, recognizers_to_run(self._types), regions=self._regions, context=self._body.context or ()
        )
        lowest, threshold = self._min_score, self._body.score_threshold or 0.0
        merger = MatchMerger(text, matches, self._labels, SourcedEntity, lambda _: lowest, listed=listed)
        entities = merger.whole(extraction).entities
        parts, cut = merger.cut(entities)
        spans = ((match.start, match.end, merger.label_of(match), match.score) for match in cut)
        around = [
            SourcedEntity(start, end, text[start:end], label, score, "pattern") for start, end, label, score in spans
        ]
        merged = sorted([*entities, *parts, *around], key=lambda entity: entity.start)
        kept = [entity for entity in merged if entity.score >= threshold]
        return kept, {(match.start, match.end): match for match in (*cut, *merger.matches)}


def _ad_hoc_rules(fields: AdHocRecognizerFields, param: str) -> Iterator[tuple[str, AdHocRule]]:
    """The rules of an ad-hoc recognizer, each after the name of its field. Raises `InvalidField`."""
    if not fields.entity:
        raise InvalidField(f"{param}.supported_entity: Field required", param=f"{param}.supported_entity")
    if not fields.patterns and not fields.deny_list:
        raise InvalidField(f"{param}.patterns: patterns or deny_list are required", param=f"{param}.patterns")
    patterns = [(f"{param}.patterns.{index}.regex", pattern) for index, pattern in enumerate(fields.patterns or ())]
    if fields.deny_list:
        denied = AdHocPattern(name="deny_list", regex=deny_list(fields.deny_list), score=fields.deny_list_score)
        patterns.append((f"{param}.deny_list", denied))
    words = [word.lower() for word in fields.context or ()]
    for path, pattern in patterns:
        rule = Rule(fields.entity, pattern.regex, pattern.score, name=pattern.name, title=fields.name)
        yield path, AdHocRule(rule, _expression(pattern.regex, fields.global_regex_flags), words)


def _expression(pattern: str, flags: int | None) -> Expression:
    return pattern, FLAGS if flags is None else flags


class _AllowList:
    """The texts that a request allows: entities with them are not returned."""

    def __init__(self, body: AnalyzeRequest, runner: ExpressionRunner, tenant: Tenant) -> None:
        self._texts, self._runner, self._tenant = set(body.allow_list or ()), runner, tenant
        self._expressions: list[Expression] = []
        if body.allow_list and body.allow_list_match == "regex":
            self._expressions = [_expression("|".join(body.allow_list), body.regex_flags)]

    async def check(self) -> None:
        """Raise `InvalidField` for a wrong expression."""
        await self._matching([])

    async def without_allowed(
        self, found: Sequence[Sequence[SourcedEntity]], listed: Sequence[Listed]
    ) -> list[list[SourcedEntity]]:
        """The entities of each text that are not allowed, or that the operator's lists deny. Raises `InvalidField`."""
        allowed = self._texts
        if self._expressions:
            allowed = await self._matching(sorted({entity.text for entities in found for entity in entities}))
        denied = [{(span.start, span.end) for span in of_text.denied} for of_text in listed]
        return [
            [entity for entity in entities if entity.text not in allowed or (entity.start, entity.end) in of_text]
            for entities, of_text in zip(found, denied, strict=True)
        ]

    async def _matching(self, texts: Sequence[str]) -> set[str]:
        with _as_invalid_field("allow_list"):
            found = await self._runner.spans(self._tenant, self._expressions, texts, first_only=True)
        return {text for text, spans in zip(texts, found, strict=True) if any(spans)}


@contextmanager
def _as_invalid_field(param: str, paths: Sequence[str] = ()) -> Iterator[None]:
    """Turns an `ExpressionError` into an `InvalidField` of `param`, or of the expression's path."""
    try:
        yield
    except ExpressionError as error:
        path = param if error.expression is None or not paths else paths[error.expression]
        raise InvalidField(f"{path}: {error}", param=path) from None


def _result(
    entity: SourcedEntity, labels: Mapping[str, str], matches: _Matches, *, explained: bool
) -> RecognizerResult:
    match = matches.get((entity.start, entity.end)) if entity.source == "pattern" else None
    name = match.rule.recognizer if match else RECOGNIZER
    explanation = None
    if explained and match:
        explanation = AnalysisExplanation(
            name,
            original_score=match.base,
            score=match.score,
            textual_explanation=f"Detected by `{name}` using pattern `{match.rule.name or match.entity}`",
            pattern_name=match.rule.name or match.entity,
            pattern=match.rule.pattern,
            score_context_improvement=match.score - match.base if match.word else 0,
            supportive_context_word=match.word,
            validation_result=match.valid,
        )
    elif explained:
        score, why = entity.score, f"Identified as {labels[entity.label]} by a GLiNER model"
        explanation = AnalysisExplanation(name, original_score=score, score=score, textual_explanation=why)
    metadata = RecognitionMetadata(name)
    return RecognizerResult(entity.label, entity.start, entity.end, entity.score, explanation, metadata)


async def _anonymize(gateway: Gateway, context: Context, request: Request) -> Response:
    if not await request.body():
        raise MalformedRequest("the body is empty")
    fields = await json_body(request, AnonymizeRequest)
    gateway.check_text(fields.text)
    detected = [
        Detected(result.start, result.end, result.entity_type, result.score) for result in fields.analyzer_results
    ]
    limit = gateway.options.max_body_bytes
    return json_response(await asyncio.to_thread(anonymize, fields.text, detected, fields.anonymizers or {}, limit))


async def _supported_entities(gateway: Gateway, context: Context, _: Request) -> Response:
    options = (await gateway.served(context)).limits
    return json_response(
        sorted({*PRESIDIO_LABELS, *_configured(options), *options.of_format(Options).presidio_entities})
    )


async def _recognizers(gateway: Gateway, context: Context, _: Request) -> Response:
    names = enabled((await gateway.served(context)).limits.recognizers)
    return json_response([RECOGNIZER, *dict.fromkeys(rule.recognizer for rule in RULES if rule.entity in names)])


async def _anonymizers(*_: object) -> Response:
    return json_response(OPERATORS)


def _configured(options: GatewayOptions) -> dict[str, str]:
    """The setting `presidio_labels`: the model's label, by entity type."""
    pairs = (pair.split("=", 1) for pair in options.of_format(Options).presidio_labels)
    return {name: label.strip() for name, label in pairs}


_TEXT = "Ada Lovelace lives in London; write to ada@example.com."
_RESULT = {"start": 0, "end": 12, "entity_type": "PERSON", "score": 0.99}
_MASK = {"type": "mask", "masking_char": "*", "chars_to_mask": 4, "from_end": False}
_LANGUAGE = query_parameter("language", "Ignored.")
_ANALYZER = WireFormat(
    error=MessageError,
    statuses={**STATUSES, "invalid_field": 400, "limit_exceeded": 400},
    examples={AnalyzeRequest: {"text": _TEXT, "language": "en", "entities": ["PERSON", "EMAIL_ADDRESS"]}},
)
_ANONYMIZER = WireFormat(
    error=MessageError,
    examples={AnonymizeRequest: {"text": _TEXT, "analyzer_results": [_RESULT], "anonymizers": {"DEFAULT": _MASK}}},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The routes of the analyzer and of the anonymizer."""
    return [
        _ANALYZER.post(
            "/analyze",
            _analyze,
            "presidio_analyze",
            "The format of Presidio's analyzer",
            request=AnalyzeRequest,
            response=AnalyzeResponse,
            errors=extract_errors(without=(422,)),
        ),
        _ANONYMIZER.post(
            "/anonymize",
            _anonymize,
            "presidio_anonymize",
            "The format of Presidio's anonymizer",
            request=AnonymizeRequest,
            response=AnonymizedText,
            needs_model=False,
            errors=(400, 413, 415, 422, 429, 500),
        ),
        _ANALYZER.get(
            "/supportedentities",
            _supported_entities,
            "presidio_supportedentities",
            "Entity types that /analyze knows by name",
            response=Names,
            parameters=[_LANGUAGE],
        ),
        _ANALYZER.get(
            "/recognizers",
            _recognizers,
            "presidio_recognizers",
            "Presidio's list of recognizers",
            response=Names,
            parameters=[_LANGUAGE],
        ),
        _ANONYMIZER.get(
            "/anonymizers", _anonymizers, "presidio_anonymizers", "Operators of /anonymize", response=Names
        ),
        HEALTH,
    ]
