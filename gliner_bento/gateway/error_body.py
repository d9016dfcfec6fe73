"""The one place where failures become the one error body."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from gliner_bento.errors import (
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

RETRY_AFTER_S = 1

_BRANCH_TYPES = {"list_type", "dict_type"}
_MADE_UP = re.compile(r"(list|dict|constrained-str|function-[a-z]+)\[.*\]|\[key\]|constrained-str|str|bool|int|float")
"""Parts of an error's path that pydantic adds: branches of unions, and which side of a dictionary it means."""

_FOREIGN: Mapping[int, tuple[type[GLiNERBentoError], str]] = {
    400: (MalformedRequest, "the request cannot be read"),
    404: (RouteNotFound, "no such route"),
    405: (MethodNotAllowed, "this route does not have this method"),
    413: (TooLarge, "the request is too large"),
    415: (UnsupportedMediaType, "send application/json"),
    429: (QueueFull, "too many requests; try again later"),
    503: (NotReady, "the server is not ready"),
    504: (DeadlineExceeded, "the deadline passed before the request finished"),
}


def error_response(error: GLiNERBentoError, *, status: int | None = None) -> Response:
    """`error` as an HTTP response; `status` overrides its own where a peer's clients expect another."""
    status = status or error.status
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (QueueFull.status, NotReady.status) else None
    content = ErrorBody(error=error.detail(request_id.current())).model_dump_json()
    return Response(content, status_code=status, media_type="application/json", headers=headers)


def from_validation(errors: Sequence[Mapping[str, Any]]) -> GLiNERBentoError:
    """One clear error out of pydantic's list: the first that is not about a union's other branch."""
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
    """`from_validation` of what pydantic raised; of the input itself it shows nothing."""
    return from_validation(invalid.errors(include_context=False, include_input=False, include_url=False))


def from_foreign(status: int, body: bytes) -> Response | None:
    """An error answer made elsewhere (the framework), in our words; none if `body` is the one error body already."""
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if isinstance(content, dict):
        if isinstance(content.get("error"), dict) and "code" in content["error"]:
            return None
        if status == MalformedRequest.status and isinstance(content.get("detail"), list) and content["detail"]:
            return error_response(from_validation(content["detail"]))
    kind, message = _FOREIGN.get(status, _FOREIGN[400])
    error = kind(message) if status < InternalError.status or status in _FOREIGN else InternalError()
    return error_response(error, status=status)
