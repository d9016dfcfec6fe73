"""Hugging Face's inference API, as `huggingface_hub.InferenceClient` calls it: zero-shot and token classification.

    InferenceClient(model="http://localhost:3000/pipeline/zero-shot-classification")

Hugging Face's token classification requests name no entity types; the types are the setting `huggingface_labels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import MessageError
from gliner_bento.gateway.wire_format import ModelName, WireFormat, extract_errors
from gliner_bento.tasks.classifications import ClassificationOptions, LabelScore
from gliner_bento.tasks.extraction import TEXT, Entity, Extraction, ExtractionOptions, extraction_of, results_or_raise
from gliner_bento.tasks.fields import Elements, Name, Score, Strict

_CLASSIFICATION = "zero-shot"
_Inputs = str | Elements[list[str]]


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of this format; docs/settings.md describes each."""

    huggingface_labels: Sequence[str]


class _Body(Strict):
    """Fields of both tasks."""

    inputs: _Inputs = Field(description="A text, or a list of texts.")
    model: ModelName = None
    options: dict[str, Any] = Field(default={}, description="Options of the hosted API, such as use_cache: no effect.")


class ZeroShotParameters(Strict):
    """Parameters of zero-shot classification."""

    candidate_labels: Annotated[Elements[list[Name]], Field(min_length=1)] | Name = Field(
        description="Labels to choose from: a list, or names separated by commas."
    )
    multi_label: bool = Field(default=False, description="Whether each label is scored on its own.")
    hypothesis_template: Name | None = Field(
        default=None, description="What the model reads for a label; the label replaces {}. Default: the label alone."
    )


class ZeroShotRequest(_Body):
    """The body of `POST /pipeline/zero-shot-classification`."""

    parameters: ZeroShotParameters


class TokenParameters(Strict):
    """Parameters of token classification. Only this server has `labels` and `threshold`."""

    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = Field(
        default=None, description="Without effect: the model predicts whole entities. `none` is refused."
    )
    ignore_labels: Elements[list[str]] = Field(default=[], description="Entity types to leave out.")
    stride: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Without effect.")
    labels: Annotated[Elements[list[Name]], Field(min_length=1)] | None = Field(
        default=None, description="Entity types. Default: the setting huggingface_labels."
    )
    threshold: Score | None = Field(default=None, description="Lowest score. Default: the server's default_threshold.")


class TokenRequest(_Body):
    """The body of `POST /pipeline/token-classification`."""

    parameters: TokenParameters = Field(default_factory=TokenParameters)


@dataclass(frozen=True, slots=True)
class EntityGroup:
    """An entity, with transformers' field names."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int

    @classmethod
    def of(cls, entity: Entity) -> EntityGroup:
        """The entity in this format."""
        return cls(entity.label, entity.score, entity.text, entity.start, entity.end)


class ZeroShotLabels(RootModel[list[LabelScore] | list[list[LabelScore]]]):
    """The labels of a text, best first; for several texts, a list of such lists."""


class TokenEntities(RootModel[list[EntityGroup] | list[list[EntityGroup]]]):
    """The entities of a text, in order of position; for several texts, a list of such lists."""


async def _zero_shot(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, ZeroShotRequest)
    options = ExtractionOptions(classifications={_CLASSIFICATION: _classification_options(body.parameters)})
    return await _response(
        gateway, context, body, options, lambda result: result.classifications[_CLASSIFICATION].labels
    )


def _classification_options(parameters: ZeroShotParameters) -> ClassificationOptions:
    """Options that return all labels. With one label, `multi_label` is on, as in transformers. Raises InvalidField."""
    labels, template = parameters.candidate_labels, parameters.hypothesis_template
    if isinstance(labels, str):
        labels = [label for label in map(str.strip, labels.split(",")) if label]
    if template and template.count("{}") != 1:
        param = "parameters.hypothesis_template"
        raise InvalidField(f"{param}: must have {{}} once, for the label", param=param)
    return {
        "labels": {label: template.replace("{}", label) for label in labels} if template else labels,
        "multi_label": parameters.multi_label or len(labels) == 1,
        "threshold": 0.0,
        "top_k": len(labels) or 1,
    }


async def _token(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, TokenRequest)
    parameters = body.parameters
    if parameters.aggregation_strategy == "none":
        param = "parameters.aggregation_strategy"
        raise InvalidField(f"{param}: none is not supported: the model predicts entities, not tokens", param=param)
    wanted = parameters.labels or gateway.options.of_format(Options).huggingface_labels
    labels = [label for label in wanted if label not in parameters.ignore_labels]
    if not labels:
        return json_response([] if isinstance(body.inputs, str) else [[] for _ in body.inputs])
    options = ExtractionOptions(labels=labels, threshold=parameters.threshold)
    return await _response(
        gateway, context, body, options, lambda result: LazySequence(EntityGroup.of, list(result.entities))
    )


async def _response(
    gateway: Gateway,
    context: Context,
    body: _Body,
    options: ExtractionOptions,
    convert: Callable[[Extraction], Sequence[Any]],
) -> Response:
    """The converted result of a text, or a list of them for several texts. Raises the first failed text's error."""
    inputs = body.inputs
    texts = [inputs] if isinstance(inputs, str) else inputs
    context.choose_model(body.model)
    answer = await gateway.run_batch(context, extraction_of(texts, options))
    results = list(map(convert, results_or_raise(answer)))
    return json_response(results[0] if isinstance(inputs, str) else results)


_FORMAT = WireFormat(
    error=MessageError,
    examples={
        ZeroShotRequest: {"inputs": TEXT, "parameters": {"candidate_labels": ["business", "sports"]}},
        TokenRequest: {"inputs": TEXT, "parameters": {"aggregation_strategy": "simple"}},
    },
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The endpoints of both tasks."""
    return [
        _FORMAT.post(
            "/pipeline/zero-shot-classification",
            _zero_shot,
            "huggingface_zero_shot",
            "Hugging Face's zero-shot classification",
            request=ZeroShotRequest,
            response=ZeroShotLabels,
            errors=extract_errors(),
        ),
        _FORMAT.post(
            "/pipeline/token-classification",
            _token,
            "huggingface_token_classification",
            "Hugging Face's token classification",
            request=TokenRequest,
            response=TokenEntities,
            errors=extract_errors(),
        ),
    ]
