"""The wire format of Presidio's analyzer and anonymizer (2.2.366): both on one address.

The model finds what Presidio's recognizers find by patterns; it has no checksums. Unknown fields are ignored, as there:
its documentation sends some. Intended differences: what Presidio answers 500 for, a wrong request, is answered 400;
ad-hoc recognizers are refused, because to leave them out would let their entities pass; `encrypt` and `/deanonymize`
are not served.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import regex
from pydantic import BaseModel, ConfigDict, Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField, MalformedRequest, from_detail
from gliner_bento.gateway import request_id
from gliner_bento.gateway.anonymize import OPERATORS, AnonymizedText, Detected, Operator, anonymize
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.presidio_labels import DEFAULT_ENTITIES, PRESIDIO_LABELS, label_of
from gliner_bento.gateway.shared_routes import HEALTH, MessageError
from gliner_bento.gateway.wire_format import WireFormat, extract_errors
from gliner_bento.tasks.extraction import Entity, ExtractionOptions, extraction_of
from gliner_bento.tasks.fields import Elements, Name, Score

RECOGNIZER = "GLiNERRecognizer"
_REGEX_TIMEOUT_S = 0.5
_MAX_PATTERN_CHARS = 10_000
_REGEX_FLAGS = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.ASCII | re.UNICODE


class _Lenient(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class AnalyzeRequest(_Lenient):
    """The body of `POST /analyze`."""

    text: str | Elements[list[str]]
    language: Name = Field(description="Required, as in Presidio; the model decides which languages it knows.")
    entities: Elements[list[Name]] | None = Field(default=None, description="Any names; see /supportedentities.")
    score_threshold: Score | None = None
    return_decision_process: bool | None = None
    ad_hoc_recognizers: list[Any] | None = Field(default=None, description="Refused unless empty.")
    allow_list: Elements[list[str]] | None = Field(
        default=None, description="Texts, or patterns, that are no findings."
    )
    allow_list_match: Literal["exact", "regex"] | None = "exact"
    regex_flags: int | None = Field(default=None, description="Of the patterns of allow_list, as in Python's re.")
    context: Elements[list[str]] | None = Field(default=None, description="Ignored: the model reads the whole text.")
    correlation_id: str | None = Field(default=None, description="Becomes the request's id if it can be one.")


@dataclass(frozen=True, slots=True)
class AnalysisExplanation:
    """Why an entity was found, with Presidio's fields."""

    recognizer: str
    original_score: float
    score: float
    textual_explanation: str
    pattern_name: str | None = None
    pattern: str | None = None
    score_context_improvement: float = 0
    supportive_context_word: str = ""
    validation_result: float | None = None
    regex_flags: int | None = None


@dataclass(frozen=True, slots=True)
class RecognizerResult:
    """An entity, without its text."""

    entity_type: str
    start: int
    end: int
    score: float
    analysis_explanation: AnalysisExplanation | None = None


class AnalyzeResponse(RootModel[list[RecognizerResult] | list[list[RecognizerResult]]]):
    """The answer of `POST /analyze`: a list, or a list for each text."""


class AnalyzerResult(_Lenient):
    """A finding to anonymize."""

    start: int
    end: int
    entity_type: Name
    score: float


class AnonymizeRequest(_Lenient):
    """The body of `POST /anonymize`."""

    text: str
    analyzer_results: Elements[list[AnalyzerResult]]
    anonymizers: Elements[dict[str, Operator]] | None = Field(
        default=None, description="Operators by entity type, and DEFAULT. Without: replace."
    )


class Names(RootModel[list[str]]):
    """A list of names."""


async def _analyze(gateway: Gateway, request: Request) -> Response:
    asked = AnalyzeRequest.model_validate_json(await request.body() or b"{}")
    if asked.ad_hoc_recognizers:
        message = "ad_hoc_recognizers: this server does not run them; see Presidio's own analyzer"
        raise InvalidField(message, param="ad_hoc_recognizers")
    options = gateway.options
    configured = _configured(options)
    names = asked.entities or options.presidio_entities or (*DEFAULT_ENTITIES, *sorted(configured))
    labels = {name: label_of(name, configured) for name in names}
    allowed = await asyncio.to_thread(_AllowList, asked)
    found = await asyncio.to_thread(allowed.filtered, await _extract(gateway, asked, labels))
    result = partial(_result, labels=labels, explained=bool(asked.return_decision_process))
    results = [LazySequence(result, entities) for entities in found]
    return json_response(results if isinstance(asked.text, list) else results[0])


async def _extract(gateway: Gateway, asked: AnalyzeRequest, labels: dict[str, str]) -> list[Sequence[Entity]]:
    """The entities of each text."""
    texts = asked.text if isinstance(asked.text, list) else [asked.text]
    threshold = max(asked.score_threshold or 0.0, gateway.options.presidio_min_score)
    options = ExtractionOptions(labels=labels, threshold=threshold)
    batch = extraction_of(texts, options, request_id=request_id.valid(asked.correlation_id))
    entities: list[Sequence[Entity]] = []
    for one in (await gateway.run_batch(batch)).results:
        if one.error:
            raise from_detail(one.error)
        entities.append(one.result.entities if one.result else ())
    return entities


class _AllowList:
    """What is no finding. Raises `InvalidField` for a pattern that is none, is too long, or takes too long."""

    def __init__(self, asked: AnalyzeRequest) -> None:
        self._texts = set(asked.allow_list or ())
        self._pattern: regex.Pattern[str] | None = None
        if asked.allow_list and asked.allow_list_match == "regex":
            pattern = "|".join(asked.allow_list)
            if len(pattern) > _MAX_PATTERN_CHARS:
                message = f"allow_list: patterns of more than {_MAX_PATTERN_CHARS} characters together"
                raise InvalidField(message, param="allow_list")
            flags = re.IGNORECASE | re.MULTILINE | re.DOTALL if asked.regex_flags is None else asked.regex_flags
            try:
                self._pattern = regex.compile(pattern, flags & _REGEX_FLAGS)
            except (regex.error, ValueError, OverflowError, RecursionError):
                raise InvalidField("allow_list: not a regular expression", param="allow_list") from None

    def filtered(self, found: Sequence[Sequence[Entity]]) -> list[list[Entity]]:
        """The entities of each text that are findings. Takes at most `_REGEX_TIMEOUT_S`."""
        ends_s = time.monotonic() + _REGEX_TIMEOUT_S
        return [[entity for entity in entities if not self._allows(entity.text, ends_s)] for entities in found]

    def _allows(self, text: str, ends_s: float) -> bool:
        if self._pattern is None:
            return text in self._texts
        try:
            left_s = max(0.001, ends_s - time.monotonic())
            return self._pattern.search(text, timeout=left_s, concurrent=True) is not None
        except TimeoutError:
            raise InvalidField("allow_list: the pattern takes too long", param="allow_list") from None


def _result(entity: Entity, labels: Mapping[str, str], *, explained: bool) -> RecognizerResult:
    why = f"Identified as {labels[entity.label]} by a GLiNER model"
    explanation = AnalysisExplanation(RECOGNIZER, entity.score, entity.score, why) if explained else None
    return RecognizerResult(entity.label, entity.start, entity.end, entity.score, explanation)


async def _anonymize(gateway: Gateway, request: Request) -> Response:
    body = await request.body()
    if not body:
        raise MalformedRequest("the body is empty")
    asked = AnonymizeRequest.model_validate_json(body)
    gateway.check_text(asked.text)
    detected = [Detected(one.start, one.end, one.entity_type, one.score) for one in asked.analyzer_results]
    limit = gateway.options.max_body_bytes
    return json_response(await asyncio.to_thread(anonymize, asked.text, detected, asked.anonymizers or {}, limit))


async def _supported_entities(gateway: Gateway, _: Request) -> Response:
    return json_response(sorted({*PRESIDIO_LABELS, *_configured(gateway.options), *gateway.options.presidio_entities}))


async def _recognizers(_: Gateway, __: Request) -> Response:
    return json_response([RECOGNIZER])


async def _anonymizers(_: Gateway, __: Request) -> Response:
    return json_response(OPERATORS)


def _configured(options: GatewayOptions) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in options.presidio_labels)
    return {name: label.strip() for name, label in pairs}


_TEXT = "Ada Lovelace lives in London; write to ada@example.com."
_FOUND = {"start": 0, "end": 12, "entity_type": "PERSON", "score": 0.99}
_MASK = {"type": "mask", "masking_char": "*", "chars_to_mask": 4, "from_end": False}
_LANGUAGE = {"name": "language", "in": "query", "schema": {"type": "string"}, "description": "Ignored."}
_ANALYZER = WireFormat(
    error=MessageError,
    statuses={**STATUSES, "invalid_field": 400, "limit_exceeded": 400},
    examples={AnalyzeRequest: {"text": _TEXT, "language": "en", "entities": ["PERSON", "EMAIL_ADDRESS"]}},
)
_ANONYMIZER = WireFormat(
    error=MessageError,
    examples={AnonymizeRequest: {"text": _TEXT, "analyzer_results": [_FOUND], "anonymizers": {"DEFAULT": _MASK}}},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The analyzer's routes, and the anonymizer's."""
    return [
        _ANALYZER.post(
            "/analyze",
            _analyze,
            "presidio_analyze",
            "The format of Presidio's analyzer",
            request=AnalyzeRequest,
            answer=AnalyzeResponse,
            errors=extract_errors(404, 422),
        ),
        _ANONYMIZER.post(
            "/anonymize",
            _anonymize,
            "presidio_anonymize",
            "The format of Presidio's anonymizer",
            request=AnonymizeRequest,
            answer=AnonymizedText,
            needs_model=False,
            errors=(400, 413, 415, 422, 429, 500),
        ),
        _ANALYZER.get(
            "/supportedentities",
            _supported_entities,
            "presidio_supportedentities",
            "Names that /analyze knows",
            answer=Names,
            parameters=[_LANGUAGE],
        ),
        _ANALYZER.get(
            "/recognizers",
            _recognizers,
            "presidio_recognizers",
            "Presidio's list of recognizers",
            answer=Names,
            parameters=[_LANGUAGE],
        ),
        _ANONYMIZER.get("/anonymizers", _anonymizers, "presidio_anonymizers", "Operators of /anonymize", answer=Names),
        HEALTH,
    ]
