"""An endpoint of the gateway: its route and its entry in the OpenAPI document, declared together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from gliner_bento.api_keys import KeyScope
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_pieces import is_large, json_pieces
from gliner_bento.gateway.media import JSON

READ_ERRORS = (500, 503)
"""Statuses of the errors that any route may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An endpoint's entry in the OpenAPI document.

    name: its operationId. request, answer: classes of the JSON bodies (of a list: a `RootModel`). more_types: further
        classes that need a schema.
    errors: statuses; their codes follow from `Endpoint.statuses`. examples: by class; `request` needs one.
    extra: edits the generated operation object.
    """

    name: str
    tag: str
    summary: str
    request: type[Any] | None = None
    answer: type[Any] | None = None
    errors: Sequence[int] = READ_ERRORS
    examples: Mapping[type[Any], Any] = field(default_factory=dict)
    more_types: Sequence[type[Any]] = ()
    parameters: Sequence[Mapping[str, Any]] = ()
    extra: Callable[[dict[str, Any]], dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A route of the gateway. operation: None for an undocumented route (a page).

    scope: what an API key needs to call it; None for a route that needs no key.

    statuses: HTTP statuses by error code; the wire format of another server may have its own.
    """

    method: str
    path: str
    scope: KeyScope | None
    answer: Callable[[Gateway, Request], Awaitable[Response]]
    operation: Operation | None = None
    statuses: Mapping[str, int] = field(default_factory=lambda: STATUSES)

    @property
    def request(self) -> type[Any] | None:
        """The type of the request's body."""
        return self.operation.request if self.operation else None


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A dataclass as a JSON response; a large one is streamed."""
    if is_large(content):
        return StreamingResponse(json_pieces(content), status_code=status, media_type=JSON, headers=headers)
    return Response(msgspec.json.encode(content), status_code=status, media_type=JSON, headers=headers)


def path_parameter(name: str, description: str) -> dict[str, Any]:
    """A parameter in an endpoint's path, for its operation."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": description}
