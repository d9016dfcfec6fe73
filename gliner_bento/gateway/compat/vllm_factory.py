"""The wire format of vllm-factory's GLiNER plugins (dd3f9f6): vLLM's `POST /pooling`.

Intended differences from that server: an unknown field of `data` is an error that names it (`candidate_labels`, which
its documentation shows and its code ignores, is ignored); scores are not rounded; long texts are processed whole.
Fields beside `data` are vLLM's and are ignored, `model` too: a server has one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail
from gliner_bento.gateway import request_id
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import HEALTH, now_s
from gliner_bento.gateway.v1.extract import LABELS, TEXT
from gliner_bento.gateway.wire_format import WireFormat, extract_errors
from gliner_bento.types import Entity, ExtractRequest, Name, Score, Strict


class PoolingData(Strict):
    """What a GLiNER plugin reads. `flat_ner` is false by default, unlike in gliner."""

    text: str
    labels: Annotated[list[Name], Field(min_length=1)]
    threshold: Score = 0.5
    flat_ner: bool = False
    multi_label: bool = False
    candidate_labels: Any = Field(default=None, description="Ignored.")


class PoolingRequest(BaseModel):
    """The body of `POST /pooling`. vLLM's other fields are ignored."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    data: PoolingData
    model: str | None = Field(default=None, description="Ignored: a server has one model.")
    task: str | None = Field(default=None, description="Ignored.")


@dataclass(frozen=True, slots=True)
class PoolingResponse:
    """The answer of `POST /pooling`: vLLM's `IOProcessorResponse`."""

    request_id: str
    created_at: int
    data: Sequence[Entity]


@dataclass(frozen=True, slots=True)
class VllmErrorInfo:
    """vLLM's description of an error."""

    message: str
    type: str
    param: str | None
    code: int


@dataclass(frozen=True, slots=True)
class VllmError:
    """vLLM's error body."""

    error: VllmErrorInfo

    @classmethod
    def of(cls, detail: ErrorDetail, status: int) -> VllmError:
        """The body of an error."""
        return cls(VllmErrorInfo(detail.message, _TYPES.get(status, "InternalServerError"), detail.param, status))


async def _pooling(gateway: Gateway, request: Request) -> Response:
    data = PoolingRequest.model_validate_json(await request.body() or b"{}").data
    answer = await gateway.extract(ExtractRequest.model_construct(**data.model_dump(exclude={"candidate_labels"})))
    headers = {"X-VLLM-Factory-Schema-Size": str(len(data.labels))}
    return json_response(PoolingResponse(request_id.current(), now_s(), answer.entities), headers=headers)


_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "BadRequestError",
    413: "BadRequestError",
    415: "BadRequestError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}
_REQUEST = {"model": "demo", "task": "plugin", "data": {"text": TEXT, "labels": LABELS, "threshold": 0.3}}
_FORMAT = WireFormat(
    error=VllmError,
    statuses={**STATUSES, "invalid_field": 400, "limit_exceeded": 400},
    examples={PoolingRequest: _REQUEST},
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """vLLM's route, and its probe."""
    pooling = _FORMAT.post(
        "/pooling",
        _pooling,
        "vllm_factory_pooling",
        "vllm-factory's format",
        request=PoolingRequest,
        answer=PoolingResponse,
        errors=extract_errors(404, 422),
    )
    return [pooling, HEALTH]
