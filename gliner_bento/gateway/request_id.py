"""The id of the current HTTP request: the one in its body, else the caller's `X-Request-ID`, else a generated one."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar

HEADER = "x-request-id"
_VALID = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")

_current: ContextVar[str] = ContextVar("request_id")


def choose(sent: str | None) -> str:
    """The id that was `sent` if it is valid, else a new one."""
    return valid(sent) or uuid.uuid4().hex


def valid(sent: str | None) -> str | None:
    """The id that was `sent`; None if it is not valid."""
    return sent if sent and _VALID.fullmatch(sent) else None


def begin(sent: str | None) -> str:
    """Make the id that `choose` returns the current one, and return it."""
    request_id = choose(sent)
    _current.set(request_id)
    return request_id


def adopt(sent: str | None) -> str:
    """Make the id that was `sent` in the body the current one, if there is one. Returns the current id."""
    if sent:
        _current.set(sent)
    return current()


def current() -> str:
    """The id of the current request; outside HTTP, a new id."""
    return _current.get(None) or uuid.uuid4().hex
