"""Makes the endpoints of another server's wire format, which share an error body and statuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorBody
from gliner_bento.gateway.endpoint import READ_ERRORS, Endpoint, Operation
from gliner_bento.gateway.error_body import STATUSES, ErrorType
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.v1.tasks import TASK_ERRORS
from gliner_bento.storage.api_keys import KeyScope

Handler = Callable[[Gateway, Request], Awaitable[Response]]

_FOR_CLIENTS = "For clients of that server; new ones call the routes under /v1."

ModelName = Annotated[str | None, Field(description="Name of the model, as /v1/models lists it. Default: the first.")]
"""A field of this server, in bodies of formats that have none for the model."""

POST_ERRORS = (400, 413, 415, *READ_ERRORS)
"""Statuses of the errors that any route with a body may have."""


def extract_errors(*never: int) -> tuple[int, ...]:
    """Statuses of the errors of an extraction, except `never`, which the format does not use."""
    return tuple(status for status in TASK_ERRORS if status not in never)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """What a format's endpoints have in common; see `Endpoint` and `Operation`."""

    error: type[ErrorType] = ErrorBody
    statuses: Mapping[str, int] = field(default_factory=lambda: STATUSES)
    examples: Mapping[type[Any], Any] = field(default_factory=dict)

    def endpoint(
        self,
        method: str,
        path: str,
        handler: Handler,
        name: str,
        summary: str,
        *,
        scope: KeyScope | None = "extract",
        needs_model: bool = True,
        description: str | None = None,
        **operation: Any,
    ) -> Endpoint:
        """One endpoint. description: by default, the summary and a note about `/v1`. operation: further fields of its
        `Operation`."""
        return Endpoint(
            method=method,
            path=path,
            scope=scope,
            answer=handler,
            statuses=self.statuses,
            error=self.error,
            needs_model=needs_model,
            operation=Operation(
                name=name,
                tag="compat",
                summary=summary,
                description=description or f"{summary}. {_FOR_CLIENTS}",
                examples=self.examples,
                **operation,
            ),
        )

    def get(self, path: str, handler: Handler, name: str, summary: str, **options: Any) -> Endpoint:
        """An endpoint without a body."""
        return self.endpoint("GET", path, handler, name, summary, **options)

    def post(self, path: str, handler: Handler, name: str, summary: str, **options: Any) -> Endpoint:
        """An endpoint with a body."""
        return self.endpoint("POST", path, handler, name, summary, **options)
