"""gliclass.serve's `POST /gliclass` (gliclass 0.1.21, Ray Serve), whose `GLiClassClient` works here unchanged.

Intended differences from gliclass.serve: all texts of a list are classified, not only the first one, and a misspelt
field is an error; few-shot `examples` are refused.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, RootModel, model_validator
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import MessageError
from gliner_bento.gateway.wire_format import ModelName, WireFormat, extract_errors
from gliner_bento.tasks.classifications import LabelScore
from gliner_bento.tasks.extraction import Extraction, ExtractionOptions, results_or_raise
from gliner_bento.tasks.extraction import Request as ExtractionRequest
from gliner_bento.tasks.fields import Elements, Name, Score, Strict

_CLASSIFICATION = "gliclass"
_Labels = Annotated[list[Name], Field(min_length=1)]


class GLiClassRequest(Strict):
    """The body of `POST /gliclass`."""

    texts: str | Annotated[Elements[list[str]], Field(min_length=1)] = Field(
        description="A text, or a list of texts. `text` is another name of this field."
    )
    labels: Annotated[Elements[list[Name] | list[_Labels]], Field(min_length=1)] = Field(
        description="Labels for all texts, or a list of labels for each text."
    )
    threshold: Score | None = Field(
        default=None, description="With multi_label, the lowest score of a label. Default: the server's."
    )
    multi_label: bool = True
    prompt: Name | Elements[list[Name]] | None = Field(
        default=None, description="What the model reads about the question: for all texts, or for each."
    )
    examples: list[Any] | None = Field(default=None, description="Few-shot examples are refused.")
    adapter_id: str | None = None
    model: ModelName = None

    @model_validator(mode="before")
    @classmethod
    def _with_texts(cls, body: Any) -> Any:
        """As in gliclass.serve, the texts may be named `text`."""
        if isinstance(body, dict) and "text" in body and "texts" not in body:
            return {"texts" if name == "text" else name: value for name, value in body.items()}
        return body


class GLiClassScores(RootModel[list[LabelScore] | list[list[LabelScore]]]):
    """The labels of a text; for a list of texts, a list of such lists."""


async def _classify(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, GLiClassRequest)
    if body.examples:
        raise InvalidField("examples: few-shot examples are not supported", param="examples")
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    shares_labels = isinstance(body.labels[0], str)
    labels: list[Any] = [body.labels] * len(texts) if shares_labels else body.labels
    prompts: list[Any] = body.prompt if isinstance(body.prompt, list) else [body.prompt] * len(texts)
    for name, values in (("labels", labels), ("prompt", prompts)):
        if len(values) != len(texts):
            raise InvalidField(f"{name}: {len(values)} for {len(texts)} texts", param=name)
    inputs = [
        (text, _options(body, own_labels, prompt))
        for text, own_labels, prompt in zip(texts, labels, prompts, strict=True)
    ]
    context.choose_model(body.model)
    answer = await gateway.run_batch(context, ExtractionRequest(inputs))
    results = [_scores(*pair) for pair in zip(results_or_raise(answer), labels, strict=True)]
    return json_response(results[0] if isinstance(body.texts, str) else results)


def _options(body: GLiClassRequest, labels: list[str], prompt: str | None) -> ExtractionOptions:
    threshold = body.threshold if body.multi_label else None
    classification: Any = {"labels": labels, "multi_label": body.multi_label, "threshold": threshold}
    if prompt:
        classification["description"] = prompt
    return ExtractionOptions(classifications={_CLASSIFICATION: classification}, adapter_id=body.adapter_id)


def _scores(extraction: Extraction, labels: list[str]) -> list[LabelScore]:
    """The labels that fit, in the request's order."""
    return sorted(extraction.classifications[_CLASSIFICATION].labels, key=lambda scored: labels.index(scored.label))


_FORMAT = WireFormat(
    error=MessageError,
    statuses={**STATUSES, "invalid_field": 400},  # as gliclass.serve; /v1 answers 422
    examples={GLiClassRequest: {"texts": ["The battery lasts a week."], "labels": ["praise", "complaint"]}},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The route of classification."""
    return [
        _FORMAT.post(
            "/gliclass",
            _classify,
            "gliclass_classify",
            "gliclass.serve's format",
            request=GLiClassRequest,
            response=GLiClassScores,
            errors=extract_errors(without=(422,)),
        )
    ]
