"""What a call sends and what its answer means: shared by both clients, and free of IO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from gliner_bento.errors import ErrorBody, ErrorDetail, InternalError, NotReady, from_detail
from gliner_bento.types import AbortResponse, ExtractBatchResponse, ExtractResponse, Labels, ModelCard

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, and the type of its answer."""

    method: str
    path: str
    answer: type[Answer]
    body: dict[str, Any] | None = None

    def read(self, response: httpx.Response) -> Answer:
        """The answer; an error answer is raised as the `GLiNERBentoError` that the server meant."""
        if response.is_success:
            return self.answer.model_validate_json(response.content)
        raise from_detail(_detail(response))


def extract(text: str, labels: Labels, options: dict[str, Any]) -> Call[ExtractResponse]:
    """`POST /v1/extract`."""
    return Call("POST", "/v1/extract", ExtractResponse, {"text": text, "labels": labels, **options})


def extract_batch(texts: Sequence[str], labels: Labels, options: dict[str, Any]) -> Call[ExtractBatchResponse]:
    """`POST /v1/extract/batch`, with options that all texts share."""
    body = {"texts": list(texts), "labels": labels, **options}
    return Call("POST", "/v1/extract/batch", ExtractBatchResponse, body)


def abort(request_id: str) -> Call[AbortResponse]:
    """`POST /v1/requests/{request_id}/abort`."""
    return Call("POST", f"/v1/requests/{quote(request_id, safe='')}/abort", AbortResponse)


def model() -> Call[ModelCard]:
    """`GET /v1/model`."""
    return Call("GET", "/v1/model", ModelCard)


def _detail(response: httpx.Response) -> ErrorDetail:
    try:
        return ErrorBody.model_validate_json(response.content).error
    except ValidationError:
        kind = NotReady if response.status_code in (502, 503) else InternalError
        return kind(f"the server answered {response.status_code}").detail()
