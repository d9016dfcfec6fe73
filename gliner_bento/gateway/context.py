"""One request, as the gateway's core sees it: who sends it, under which id, for which model. Knows no HTTP."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gliner_bento.gateway.policy.tenants import OUTSIDE_HTTP, Tenant

_SEPARATOR = "/"
"""A character that no tenant's name and no request id contains."""


@dataclass(slots=True)
class RequestRecord:
    """What the handlers of a request record for its log line, metrics and span.

    model: the configured name of its model, if the model has one. admitted: whether its items were sent to the replica.
    items: number of items with a result. tokens: of all passes, prompts included. error: code of its error.
    trace: the `traceparent` of its span, if it is traced.
    """

    trace: str | None = None
    model: str | None = None
    admitted: bool = False
    items: int = 0
    tokens: int = 0
    error: str | None = None


def new_id() -> str:
    """An id for a request without one."""
    return os.urandom(16).hex()


@dataclass(slots=True)
class Context:
    """The state of one request. Outside HTTP, the defaults.

    id: the one in its body, else the caller's `X-Request-ID`, else a generated one. model: the name of its model; None:
    the default model.
    """

    id: str = field(default_factory=new_id)
    tenant: Tenant = OUTSIDE_HTTP
    model: str | None = None
    record: RequestRecord = field(default_factory=RequestRecord)

    def own(self, request_id: str) -> str:
        """The id that the replica gets: tenants may use the same request ids, and can abort only their own requests."""
        return f"{self.tenant.name}{_SEPARATOR}{request_id}"

    def choose_model(self, name: str | None) -> None:
        """Set the model that the body names, or the path of a wire format: it replaces the URL's. None: no change."""
        if name is not None:
            self.model = name
