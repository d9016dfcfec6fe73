"""The one place where failures become the one error body."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from gliner_bento.errors import (
    ErrorBody,
    ErrorDetail,
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

_UNION_BRANCH_TYPES = {"list_type", "dict_type"}
_BY_STATUS: Mapping[int, tuple[type[GLiNERBentoError], str]] = {
    400: (MalformedRequest, "the request cannot be read"),
    404: (RouteNotFound, "no such route"),
    405: (MethodNotAllowed, "this route does not have this method"),
    413: (TooLarge, "the request is too large"),
    415: (UnsupportedMediaType, "send application/json"),
    429: (QueueFull, "too many requests; try again later"),
    503: (NotReady, "the server is not ready"),
}


def error_response(error: GLiNERBentoError, *, status: int | None = None) -> Response:
    """`error` as an HTTP response; `status` overrides its own where a peer's clients expect another."""
    return detail_response(error.detail(request_id.current()), status or error.status)


def detail_response(detail: ErrorDetail, status: int) -> Response:
    """`detail` as an HTTP response."""
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (QueueFull.status, NotReady.status) else None
    content = ErrorBody(error=detail).model_dump_json()
    return Response(content, status_code=status, media_type="application/json", headers=headers)


def from_validation(errors: Sequence[Mapping[str, Any]]) -> GLiNERBentoError:
    """One clear error out of pydantic's list: the first that is not about a union's other branch."""
    first = next((error for error in errors if error["type"] not in _UNION_BRANCH_TYPES), errors[0])
    if first["type"] == "json_invalid":
        return MalformedRequest(f"the body is not valid JSON ({first['msg'].removeprefix('Invalid JSON: ')})")
    path = ".".join(str(part) for part in first["loc"] if _is_public(part))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in _UNION_BRANCH_TYPES and len(errors) > 1:
        message = "Input should be a list, or a {name: description} object"
    return InvalidField(f"{path or 'body'}: {message}", param=path or None)


def _is_public(part: int | str) -> bool:
    """False for the parts of an error's path that pydantic makes up: union branches and constraint names."""
    return isinstance(part, int) or not any(mark in part for mark in "[](")


def from_foreign(status: int, body: bytes) -> GLiNERBentoError | None:
    """What an error answer made elsewhere (the framework) means; none if `body` is the one error body already."""
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if isinstance(content, dict):
        if isinstance(content.get("error"), dict) and "code" in content["error"]:
            return None
        if status == MalformedRequest.status and isinstance(content.get("detail"), list) and content["detail"]:
            return from_validation(content["detail"])
    kind, message = _BY_STATUS.get(status, (None, ""))
    if kind is None:
        return InternalError() if status >= 500 else MalformedRequest(_BY_STATUS[400][1])
    return kind(message)
