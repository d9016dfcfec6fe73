"""Turns all failures into HTTP responses: statuses, headers and the error body."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    ErrorBody,
    ErrorDetail,
    GLiNERBentoError,
    InternalError,
    MalformedRequest,
    MethodNotAllowed,
    NotReady,
    QueueFull,
    RouteNotFound,
    TooLarge,
    UnsupportedMediaType,
)
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.media import JSON
from gliner_bento.gateway.validation import from_model, from_validation

STATUSES: Mapping[str, int] = {
    "malformed_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "model_not_found": 404,
    "adapter_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "conflict": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid_field": 422,
    "limit_exceeded": 422,
    "adapter_invalid": 422,
    "model_failed": 422,
    "queue_full": 429,
    "rate_limited": 429,
    "headers_too_large": 431,
    "aborted": 499,
    "internal": 500,
    "scores_not_finite": 500,
    "ends_process": 500,
    "not_supported": 501,
    "not_ready": 503,
    "model_not_loaded": 503,
    "deadline_exceeded": 504,
    "does_not_fit": 507,
    "storage_full": 507,
    "storage_unavailable": 507,
}
"""The HTTP status of each error code."""

_RETRYABLE = (429, 503, 504)

_FRAMEWORK_ERRORS: Mapping[int, tuple[type[GLiNERBentoError], str]] = {
    400: (MalformedRequest, "the request cannot be read"),
    404: (RouteNotFound, "no such route"),
    405: (MethodNotAllowed, "this route does not have this method"),
    413: (TooLarge, "the request is too large"),
    415: (UnsupportedMediaType, "send application/json"),
    429: (QueueFull, "too many requests; try again later"),
    499: (Aborted, "the client closed the connection"),
    503: (NotReady, "the server is not ready"),
    504: (DeadlineExceeded, DeadlineExceeded.before("the request finished").message),
}
"""By HTTP status, the error and the message that replace an error response of Starlette or BentoML."""


class ErrorType(Protocol):
    """The class of an error body: `ErrorBody`, or the class of another server's format."""

    @classmethod
    def of(cls, detail: ErrorDetail, status: int, /) -> Any:
        """The body of an error that has this HTTP status."""


async def respond(
    context: Context,
    answer: Awaitable[Response],
    statuses: Mapping[str, int] = STATUSES,
    request: type[Any] | None = None,
    body: type[ErrorType] = ErrorBody,
) -> Response:
    """Wait for `answer`; an error that concerns the caller becomes an error response. Other exceptions propagate.

    statuses: by error code. request: class of the request's body, whose field names are suggested for unknown fields.
    body: class of the error body.
    """
    try:
        return await answer
    except GLiNERBentoError as error:
        return error_response(context, error, statuses, body)
    except ValidationError as invalid:
        return error_response(context, from_model(invalid, request), statuses, body)
    except ClientDisconnect:
        return error_response(context, Aborted("the body ended before it was complete"), statuses, body)


def error_response(
    context: Context,
    error: GLiNERBentoError,
    statuses: Mapping[str, int] = STATUSES,
    body: type[ErrorType] = ErrorBody,
) -> Response:
    """`error` as an HTTP response, also recorded in `context`."""
    return _response(context, error, statuses[error.code], body)


def from_framework(
    context: Context,
    status: int,
    sent: bytes,
    request: type[Any] | None = None,
    body: type[ErrorType] = ErrorBody,
) -> Response | None:
    """The response that replaces an error response of Starlette or BentoML; None if that already has our error body.

    sent: the body of the error response. request, body: see `respond`.
    """
    if context.record.error is not None:
        return None
    try:
        content = json.loads(sent)
    except ValueError:
        content = None
    if isinstance(content, dict):
        if isinstance(content.get("error"), dict) and "code" in content["error"]:
            return None
        invalid_fields = content.get("detail")  # in BentoML's error body, pydantic's list of errors
        if status == STATUSES["malformed_request"] and isinstance(invalid_fields, list) and invalid_fields:
            return error_response(context, from_validation(invalid_fields, request), body=body)
    error_class, message = _FRAMEWORK_ERRORS.get(status, _FRAMEWORK_ERRORS[400])
    is_known = status < STATUSES["internal"] or status in _FRAMEWORK_ERRORS
    error = error_class(message) if is_known else InternalError()
    return _response(context, error, status, body)


def _response(context: Context, error: GLiNERBentoError, status: int, body: type[ErrorType]) -> Response:
    headers = {"Retry-After": str(getattr(error, "retry_after_s", 1))} if status in _RETRYABLE else {}
    if status == STATUSES["unauthorized"]:
        headers["WWW-Authenticate"] = "Bearer"
    context.record.error = error.code
    content = msgspec.json.encode(body.of(error.detail(context.id), status))
    return Response(content, status_code=status, media_type=JSON, headers=headers)
