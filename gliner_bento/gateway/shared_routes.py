"""Routes and error bodies that several other servers have in common. One response serves all their clients.

Each format lists the shared routes that its clients call in its `endpoints`; those of the enabled formats are served.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, NotReady
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.wire_format import WireFormat


@dataclass(frozen=True, slots=True)
class MessageError:
    """An error body with one sentence, as in gliner.serve, Presidio and vllm-factory's dispatcher."""

    error: str

    @classmethod
    def of(cls, detail: ErrorDetail, _status: int) -> MessageError:
        """The body of an error."""
        return cls(detail.message)


@dataclass(frozen=True, slots=True)
class DetailError:
    """FastAPI's error body with one sentence, as in NeMo's, Fastino's and Xinference's servers."""

    detail: str

    @classmethod
    def of(cls, detail: ErrorDetail, _status: int) -> DetailError:
        """The body of an error."""
        return cls(detail.message)


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of `GET /health`."""

    status: Literal["UP"] = "UP"


def now_s() -> int:
    """Unix time in seconds, for `created` in answers."""
    return int(time.time())


async def _health(gateway: Gateway, context: Context, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("no healthy backends")
    return json_response(Health())


HEALTH = WireFormat(error=MessageError).get(
    "/health",
    _health,
    "health",
    "Whether the server answers requests, for clients of other servers",
    description="As /readyz, 200 if requests are admitted, else 503; the body is one that other servers' clients read.",
    scope=None,
    response=Health,
    errors=(503,),
)
