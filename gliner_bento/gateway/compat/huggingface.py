"""Hugging Face's inference API, as `huggingface_hub.InferenceClient` calls it: zero-shot and token classification.

    InferenceClient(model="http://localhost:3000/pipeline/zero-shot-classification")

Requests of token classification name no entity types; theirs are those of the setting `huggingface_labels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField, from_detail
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import MessageError
from gliner_bento.gateway.wire_format import ModelName, WireFormat, extract_errors
from gliner_bento.tasks.classifications import ClassificationOptions, LabelScore
from gliner_bento.tasks.extraction import TEXT, Entity, Extraction, ExtractionOptions, extraction_of
from gliner_bento.tasks.fields import Elements, Name, Score, Strict

_NAME = "zero-shot"
_Inputs = str | Elements[list[str]]


class _Body(Strict):
    """What both tasks have. options: of the hosted API (use_cache, wait_for_model); without effect here."""

    inputs: _Inputs = Field(description="A text, or several.")
    model: ModelName = None
    options: dict[str, Any] = Field(default={}, description="Of the hosted API; without effect.")


class ZeroShotParameters(Strict):
    """Parameters of zero-shot classification."""

    candidate_labels: Annotated[Elements[list[Name]], Field(min_length=1)] | Name = Field(
        description="A list, or names separated by commas."
    )
    multi_label: bool = Field(default=False, description="Each label is scored on its own.")
    hypothesis_template: Name | None = Field(
        default=None, description="What the model reads for each label, which replaces {}. Default: the label alone."
    )


class ZeroShotRequest(_Body):
    """The body of `POST /pipeline/zero-shot-classification`."""

    parameters: ZeroShotParameters


class TokenParameters(Strict):
    """Parameters of token classification. labels, threshold: of this server alone."""

    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = Field(
        default=None, description="Without effect: the model predicts whole entities. `none` is refused."
    )
    ignore_labels: Elements[list[str]] = Field(default=[], description="Entity types to leave out.")
    stride: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Without effect.")
    labels: Annotated[Elements[list[Name]], Field(min_length=1)] | None = Field(
        default=None, description="Entity types. Default: the setting huggingface_labels."
    )
    threshold: Score | None = Field(default=None, description="Lowest score. Default: the server's.")


class TokenRequest(_Body):
    """The body of `POST /pipeline/token-classification`."""

    parameters: TokenParameters = Field(default_factory=TokenParameters)


@dataclass(frozen=True, slots=True)
class EntityGroup:
    """An entity."""

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
    """The labels of a text, best first; a list for each of several texts."""


class TokenEntities(RootModel[list[EntityGroup] | list[list[EntityGroup]]]):
    """The entities of a text, in order of position; a list for each of several texts."""


async def _zero_shot(gateway: Gateway, request: Request) -> Response:
    body = ZeroShotRequest.model_validate_json(await request.body() or b"{}")
    options = ExtractionOptions(classifications={_NAME: _classification(body.parameters)})
    return await _answered(gateway, body, options, lambda found: found.classifications[_NAME].labels)


def _classification(asked: ZeroShotParameters) -> ClassificationOptions:
    """All labels with their scores. Raises InvalidField. A single label is scored on its own, as in transformers."""
    given, template = asked.candidate_labels, asked.hypothesis_template
    labels = [label for label in map(str.strip, given.split(",")) if label] if isinstance(given, str) else given
    if template and template.count("{}") != 1:
        param = "parameters.hypothesis_template"
        raise InvalidField(f"{param}: must have {{}} once, for the label", param=param)
    return {
        "labels": {label: template.replace("{}", label) for label in labels} if template else labels,
        "multi_label": asked.multi_label or len(labels) == 1,
        "threshold": 0.0,
        "top_k": len(labels) or 1,
    }


async def _token(gateway: Gateway, request: Request) -> Response:
    body = TokenRequest.model_validate_json(await request.body() or b"{}")
    asked = body.parameters
    if asked.aggregation_strategy == "none":
        param = "parameters.aggregation_strategy"
        raise InvalidField(f"{param}: none is not supported: the model predicts entities, not tokens", param=param)
    labels = [one for one in asked.labels or gateway.options.huggingface_labels if one not in asked.ignore_labels]
    if not labels:
        return json_response([] if isinstance(body.inputs, str) else [[] for _ in body.inputs])
    options = ExtractionOptions(labels=labels, threshold=asked.threshold)
    return await _answered(gateway, body, options, lambda found: LazySequence(EntityGroup.of, list(found.entities)))


async def _answered(
    gateway: Gateway, body: _Body, options: ExtractionOptions, shape: Callable[[Extraction], Sequence[Any]]
) -> Response:
    """The answer for a text, or the list of those for several. Raises a text's error."""
    inputs = body.inputs
    texts = [inputs] if isinstance(inputs, str) else inputs
    answer = await gateway.run_batch(extraction_of(texts, options, model=body.model))
    for one in answer.results:
        if one.error:
            raise from_detail(one.error)
    shaped = [shape(one.result or Extraction(())) for one in answer.results]
    return json_response(shaped[0] if isinstance(inputs, str) else shaped)


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
            answer=ZeroShotLabels,
            errors=extract_errors(404),
        ),
        _FORMAT.post(
            "/pipeline/token-classification",
            _token,
            "huggingface_token_classification",
            "Hugging Face's token classification",
            request=TokenRequest,
            answer=TokenEntities,
            errors=extract_errors(404),
        ),
    ]
