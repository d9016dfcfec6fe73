"""The id of the HTTP request under way: the one in its body, else the caller's `X-Request-ID`, else one of ours."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar

HEADER = "x-request-id"
_VALID = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")

_current: ContextVar[str] = ContextVar("request_id")


def begin(sent: str | None) -> str:
    """Start a request: take over the id that was `sent` if it is a valid one, else make one."""
    request_id = sent if sent and _VALID.fullmatch(sent) else uuid.uuid4().hex
    _current.set(request_id)
    return request_id


def adopt(sent: str | None) -> str:
    """Go on under the id that came with the body, if one did; the id of the request from now on."""
    if sent:
        _current.set(sent)
    return current()


def current() -> str:
    """The id of the request under way; a fresh one outside HTTP."""
    return _current.get(None) or uuid.uuid4().hex
