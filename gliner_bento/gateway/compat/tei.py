"""text-embeddings-inference's `POST /predict`, under the prefix /tei: sequence classification.

Its requests name no labels; the labels are the setting `tei_labels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.wire_format import ModelName, WireFormat, extract_errors
from gliner_bento.tasks.classifications import LabelScore
from gliner_bento.tasks.extraction import ExtractionOptions, extraction_of, results_or_raise
from gliner_bento.tasks.fields import Elements, Lenient

_CLASSIFICATION = "predict"
ErrorType = Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]
_TYPES: dict[int, ErrorType] = {429: "Overloaded", 500: "Backend", 503: "Unhealthy", 504: "Backend", 507: "Backend"}


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of this format; docs/settings.md describes each."""

    tei_labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class TeiError:
    """The error body of text-embeddings-inference."""

    error: str
    error_type: ErrorType

    @classmethod
    def of(cls, detail: ErrorDetail, status: int) -> TeiError:
        """The body of an error."""
        return cls(detail.message, _TYPES.get(status, "Validation"))


class TeiPredictRequest(Lenient):
    """The body of `POST /tei/predict`. Unknown fields are ignored, as in text-embeddings-inference."""

    inputs: str | Elements[list[str | Annotated[list[str], Field(min_length=1, max_length=1)]]] = Field(
        description="A text, a list of texts, or a list of lists with one text each."
    )
    raw_scores: bool = Field(default=False, description="true is refused: scores are probabilities.")
    truncate: bool = Field(default=False, description="true: read only the beginning of a long text; false: all of it.")
    truncation_direction: Literal["Left", "Right"] = Field(default="Right", description="Left is refused.")
    model: ModelName = None


class TeiScores(RootModel[list[LabelScore] | list[list[LabelScore]]]):
    """The labels of a text, best first; for several texts, a list of such lists."""


async def _predict(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, TeiPredictRequest)
    if body.raw_scores:
        raise InvalidField("raw_scores: true is not supported", param="raw_scores")
    if body.truncation_direction == "Left":
        raise InvalidField("truncation_direction: Left is not supported", param="truncation_direction")
    labels = list(gateway.options.of_format(Options).tei_labels)
    options = ExtractionOptions(
        classifications={_CLASSIFICATION: {"labels": labels, "top_k": len(labels)}},
        long_text="truncate" if body.truncate else "window",
    )
    inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    texts = [text if isinstance(text, str) else text[0] for text in inputs]
    context.choose_model(body.model)
    answer = await gateway.run_batch(context, extraction_of(texts, options))
    scores = [extraction.classifications[_CLASSIFICATION].labels for extraction in results_or_raise(answer)]
    return json_response(scores[0] if isinstance(body.inputs, str) else scores)


_FORMAT = WireFormat(
    error=TeiError, examples={TeiPredictRequest: {"inputs": "The battery lasts a week.", "truncate": True}}
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The route of sequence classification."""
    return [
        _FORMAT.post(
            "/tei/predict",
            _predict,
            "tei_predict",
            "text-embeddings-inference's sequence classification",
            request=TeiPredictRequest,
            response=TeiScores,
            errors=extract_errors(),
        )
    ]
