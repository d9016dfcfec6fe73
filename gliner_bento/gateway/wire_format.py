"""Makes the endpoints of another server's wire format, which share an error body and statuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorBody
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import COMMON_ERRORS, Endpoint, Operation
from gliner_bento.gateway.error_body import STATUSES, ErrorType
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.v1.extract import EXTRACT_ERRORS
from gliner_bento.storage.api_keys import KeyScope

RouteHandler = Callable[[Gateway, Context, Request], Awaitable[Response]]

_NOTE = "For existing clients of that server; new clients call the routes under /v1."

ModelName = Annotated[str | None, Field(description="Name of the model, as /v1/models lists it. Default: the first.")]
"""The field with the model's name, which this server adds to formats that have no such field."""

POST_ERRORS = (400, 413, 415, *COMMON_ERRORS)
"""HTTP statuses of the errors that any route with a body may have."""


def extract_errors(without: Collection[int] = ()) -> tuple[int, ...]:
    """HTTP statuses of the errors of an extraction. without: statuses that the format does not use."""
    return tuple(status for status in EXTRACT_ERRORS if status not in without)


async def entity_types_of_relations(gateway: Gateway, context: Context) -> list[str] | None:
    """The entity types of a request that names only relations; None if the model needs no entity types."""
    return None if await has_gliner2(gateway, context) else list(gateway.options.fastino_labels)


async def has_gliner2(gateway: Gateway, context: Context) -> bool:
    """Whether the request's model is a GLiNER2 model."""
    return (await (await gateway.served(context)).info()).family.startswith("GLiNER2")


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
        handler: RouteHandler,
        name: str,
        summary: str,
        *,
        scope: KeyScope | None = "extract",
        needs_model: bool = True,
        description: str | None = None,
        **operation: Any,
    ) -> Endpoint:
        """An endpoint. description: if None, the summary with a note that new clients call /v1. operation: further
        fields of its `Operation`."""
        return Endpoint(
            method=method,
            path=path,
            scope=scope,
            handler=handler,
            statuses=self.statuses,
            error=self.error,
            needs_model=needs_model,
            operation=Operation(
                name=name,
                tag="compat",
                summary=summary,
                description=description or f"{summary}. {_NOTE}",
                examples=self.examples,
                **operation,
            ),
        )

    def get(self, path: str, handler: RouteHandler, name: str, summary: str, **options: Any) -> Endpoint:
        """An endpoint without a body."""
        return self.endpoint("GET", path, handler, name, summary, **options)

    def post(self, path: str, handler: RouteHandler, name: str, summary: str, **options: Any) -> Endpoint:
        """An endpoint with a body."""
        return self.endpoint("POST", path, handler, name, summary, **options)
