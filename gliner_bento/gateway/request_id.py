"""The ids that callers give to requests."""

from __future__ import annotations

import re

from gliner_bento.gateway.context import new_id

HEADER = "x-request-id"
_VALID = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")


def choose(sent: str | None) -> str:
    """The id that was `sent` if it is valid, else a new one."""
    return valid(sent) or new_id()


def valid(sent: str | None) -> str | None:
    """The id that was `sent`; None if it is not valid."""
    return sent if sent and _VALID.fullmatch(sent) else None
