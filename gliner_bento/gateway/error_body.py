"""The one place where failures become HTTP: statuses, headers and the one error body."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import msgspec
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    ErrorBody,
    GLiNERBentoError,
    InternalError,
    InvalidField,
    MalformedRequest,
    MethodNotAllowed,
    NotReady,
    QueueFull,
    RouteNotFound,
    TooLarge,
    UnsupportedMediaType,
)
from gliner_bento.gateway import request_id
from gliner_bento.gateway.media import JSON

STATUSES: Mapping[str, int] = {
    "malformed_request": 400,
    "not_found": 404,
    "adapter_not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid_field": 422,
    "adapter_invalid": 422,
    "queue_full": 429,
    "aborted": 499,
    "internal": 500,
    "not_ready": 503,
    "deadline_exceeded": 504,
    "does_not_fit": 507,
    "storage_full": 507,
}
"""The HTTP status of each error code."""

_RETRYABLE = (429, 503, 504)

_BRANCH_TYPES = {"list_type", "dict_type"}
_MADE_UP = re.compile(r"(list|dict|constrained-str|function-[a-z]+)\[.*\]|\[key\]|constrained-str|str|bool|int|float")
"""Parts of an error's path that pydantic adds: branches of unions, and keys of dictionaries."""

_FRAMEWORK: Mapping[int, tuple[type[GLiNERBentoError], str]] = {
    400: (MalformedRequest, "the request cannot be read"),
    404: (RouteNotFound, "no such route"),
    405: (MethodNotAllowed, "this route does not have this method"),
    413: (TooLarge, "the request is too large"),
    415: (UnsupportedMediaType, "send application/json"),
    429: (QueueFull, "too many requests; try again later"),
    503: (NotReady, "the server is not ready"),
    504: (DeadlineExceeded, "the deadline passed before the request finished"),
}


async def respond(answer: Awaitable[Response], statuses: Mapping[str, int] = STATUSES) -> Response:
    """Wait for `answer`; an error that concerns the caller becomes its error response.

    statuses: by error code. Any other exception is a fault of the server and propagates to the middleware.
    """
    try:
        return await answer
    except GLiNERBentoError as error:
        return error_response(error, statuses)
    except ValidationError as invalid:
        return error_response(from_model(invalid), statuses)
    except ClientDisconnect:
        return error_response(Aborted("the body ended before it was complete"), statuses)


def error_response(error: GLiNERBentoError, statuses: Mapping[str, int] = STATUSES) -> Response:
    """`error` as an HTTP response."""
    return _response(error, statuses[error.code])


def from_validation(errors: Sequence[Mapping[str, Any]]) -> GLiNERBentoError:
    """The first error of pydantic's list that is not about another branch of a union."""
    first = next((error for error in errors if error["type"] not in _BRANCH_TYPES), errors[0])
    if first["type"] == "json_invalid":
        return MalformedRequest(f"the body is not valid JSON ({first['msg'].removeprefix('Invalid JSON: ')})")
    unknown = first["type"] == "extra_forbidden"
    path = ".".join(str(part) for part in first["loc"] if unknown or not _MADE_UP.fullmatch(str(part)))
    message = "unknown field" if unknown else first["msg"].removeprefix("Value error, ")
    if first["type"] in _BRANCH_TYPES and len(errors) > 1:
        message = "Input should be a list, or a {name: description} object"
    return InvalidField(f"{path or 'body'}: {message}", param=path or None)


def from_model(invalid: ValidationError) -> GLiNERBentoError:
    """`from_validation` of a pydantic error; the message never contains the input."""
    return from_validation(invalid.errors(include_context=False, include_input=False, include_url=False))


def from_framework(status: int, body: bytes) -> Response | None:
    """An error response of the framework, with the one error body; None if `body` already is one."""
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if isinstance(content, dict):
        if isinstance(content.get("error"), dict) and "code" in content["error"]:
            return None
        if status == STATUSES["malformed_request"] and isinstance(content.get("detail"), list) and content["detail"]:
            return error_response(from_validation(content["detail"]))
    kind, message = _FRAMEWORK.get(status, _FRAMEWORK[400])
    error = kind(message) if status < STATUSES["internal"] or status in _FRAMEWORK else InternalError()
    return _response(error, status)


def _response(error: GLiNERBentoError, status: int) -> Response:
    headers = {"Retry-After": str(getattr(error, "retry_after_s", 1))} if status in _RETRYABLE else None
    content = msgspec.json.encode(ErrorBody(error.detail(request_id.current())))
    return Response(content, status_code=status, media_type=JSON, headers=headers)
