"""An endpoint of the gateway: its route and its entry in the OpenAPI document, declared together."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partialmethod
from http import HTTPStatus
from itertools import chain
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from gliner_bento.errors import ErrorBody, RateLimited, UnsupportedMediaType
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.error_body import STATUSES, ErrorType
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import json_parts
from gliner_bento.gateway.media import JSON, media_type
from gliner_bento.http.pieces import PIECE_BYTES, PiecesResponse, coalesced, next_piece
from gliner_bento.storage.api_keys import KeyScope

Handler = Callable[[Gateway, Context, Request], Awaitable[Response]]

COMMON_ERRORS = (500, 503)
"""HTTP statuses of the errors that any route may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An endpoint's entry in the OpenAPI document.

    name: the operationId, which names the function of a generated client, or the tool of a language model. description:
        what the endpoint does and when to call it.
    request, response: classes of the JSON bodies (for a list: a `RootModel`). more_types: further classes that need a
        schema.
    errors: HTTP statuses; the error codes follow from `Endpoint.statuses`. examples: example bodies, by class; required
        for `request`.
    extra: edits the generated operation object.
    """

    name: str
    tag: str
    summary: str
    description: str
    request: type[Any] | None = None
    response: type[Any] | None = None
    errors: Sequence[int] = COMMON_ERRORS
    examples: Mapping[type[Any], Any] = field(default_factory=dict)
    more_types: Sequence[type[Any]] = ()
    parameters: Sequence[Mapping[str, Any]] = ()
    extra: Callable[[dict[str, Any]], dict[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)  # without slots, for `cached_property`
class Endpoint:
    """A route of the gateway. operation: None for an undocumented route (a page).

    needs_model: whether requests run the model; used only if `is_limited`.

    uploads: the setting with the maximum size of a file, which may be sent as the body in place of JSON; empty: files
    are not accepted.

    reads_lines: whether the body may be JSON lines, which are read while they arrive.

    scope: the scope that an API key needs; None for a route that needs no key.

    statuses: HTTP statuses by error code. error: class of the error body. The wire format of another server may have
    its own statuses and error body.
    """

    method: str
    path: str
    scope: KeyScope | None
    handler: Handler
    operation: Operation | None = None
    statuses: Mapping[str, int] = field(default_factory=lambda: STATUSES)
    error: type[ErrorType] = ErrorBody
    needs_model: bool = True
    uploads: str = ""
    reads_lines: bool = False

    @property
    def request(self) -> type[Any] | None:
        """The type of the request's body."""
        return self.operation.request if self.operation else None

    @cached_property
    def has_deadline(self) -> bool:
        """Whether a request may set a deadline, `timeout_ms`."""
        return "timeout_ms" in getattr(self.request, "model_fields", ())

    @cached_property
    def is_limited(self) -> bool:
        """Whether tenants' limits apply: true for extractions whose documented errors include `RateLimited`."""
        return (
            self.method == "POST"
            and self.scope == "extract"
            and self.operation is not None
            and self.statuses[RateLimited.code] in self.operation.errors
        )

    @cached_property
    def is_refusable(self) -> bool:
        """Whether an overloaded server refuses requests of this endpoint, because they run the model."""
        return self.is_limited and self.needs_model


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointGroup:
    """Makes endpoints that have much in common. The fields are defaults of those of `Endpoint` and `Operation`.

    note: describes, with its summary, an endpoint that has no description.
    """

    tag: str
    scope: KeyScope | None = "extract"
    errors: Sequence[int] = COMMON_ERRORS
    parameters: Sequence[Mapping[str, Any]] = ()
    examples: Mapping[type[Any], Any] = field(default_factory=dict)
    error: type[ErrorType] = ErrorBody
    statuses: Mapping[str, int] = field(default_factory=lambda: STATUSES)
    note: str = ""

    def endpoint(
        self, method: str, path: str, handler: Handler, name: str, summary: str, description: str = "", **more: Any
    ) -> Endpoint:
        """An endpoint. more: further fields of the endpoint and of its operation."""
        common = {"errors": self.errors, "parameters": self.parameters, "examples": self.examples}
        own = {key: more.pop(key) for key in ("scope", "needs_model", "uploads") if key in more}
        operation = Operation(
            name=name,
            tag=self.tag,
            summary=summary,
            description=description or f"{summary}. {self.note}",
            **(common | more),
        )
        shared: dict[str, Any] = {"scope": self.scope, "statuses": self.statuses, "error": self.error}
        return Endpoint(method=method, path=path, handler=handler, operation=operation, **(shared | own))

    get = partialmethod[Endpoint](endpoint, "GET")
    post = partialmethod[Endpoint](endpoint, "POST")
    put = partialmethod[Endpoint](endpoint, "PUT")
    delete = partialmethod[Endpoint](endpoint, "DELETE")


class EndpointTable:
    """Finds the endpoints of a path. `{name}` in an endpoint's path stands for any part of a path."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        paths: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        self._exact = {path: methods for path, methods in paths.items() if "{" not in path}
        self._patterns = [(_pattern(path), methods) for path, methods in paths.items() if "{" in path]

    def find(self, path: str) -> tuple[Mapping[str, Endpoint], re.Match[str] | None]:
        """The endpoints of a path by method, none if it is unknown, and the match of a path with parameters."""
        if (methods := self._exact.get(path)) is not None:
            return methods, None
        for pattern, methods in self._patterns:
            if match := pattern.match(path):
                return methods, match
        return {}, None

    def nearest(self, method: str, path: str) -> Endpoint | None:
        """The endpoint of a method at a path, or else of another method there, whose errors have the same format."""
        methods, _ = self.find(path)
        return methods.get(method) or next(iter(methods.values()), None)


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return compile_path(path)[0]


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response, see `json_parts`; a large one is streamed."""
    parts = json_parts(content)
    start = next_piece(parts)
    if len(start) < PIECE_BYTES:
        return Response(start, status_code=status, media_type=JSON, headers=headers)
    pieces = coalesced(chain((start,), parts))
    return PiecesResponse(pieces, status_code=status, media_type=JSON, headers=headers)


def archive_of(request: Request) -> AsyncIterator[bytes]:
    """The archive in a request's body, in chunks as they arrive. Raises `UnsupportedMediaType` for a form."""
    if media_type(request.headers) == "multipart/form-data":
        raise UnsupportedMediaType("send the archive itself as the body, not a form (curl -T archive.zip)")
    return request.stream()


def path_parameter(name: str, description: str) -> dict[str, Any]:
    """A parameter in an endpoint's path, for its operation."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": description}


def query_parameter(name: str, description: str, *, kind: str = "string", required: bool = False) -> dict[str, Any]:
    """A parameter in an endpoint's query, for its operation. kind: a type of JSON Schema."""
    parameter = {"name": name, "in": "query", "schema": {"type": kind}, "description": description}
    return parameter | ({"required": True} if required else {})


def success(status: int, description: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An `Operation.extra` for an operation that succeeds with another status than 200; 204 has no body."""

    def edit(operation: dict[str, Any]) -> dict[str, Any]:
        response = operation["responses"].pop("200")
        body = {} if status == HTTPStatus.NO_CONTENT else response
        operation["responses"][str(status)] = body | {"description": description}
        return operation

    return edit


MODEL = query_parameter("model", "Name of the model, as /v1/models lists it. Default: the first.")
"""The query parameter that selects the model of a request (see `edge`), for `Operation.parameters`."""

BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
"""The OpenAPI `content` of a request body that is a file."""
