"""The edge: what a request's line and headers decide, found once: its path, model, endpoint, tenant and id.

`HttpProtocol` makes the `Arrival` when the headers are complete, and passes it on in the ASGI scope. `Entrance`, the
outermost middleware, takes it from there; it makes one if another HTTP server serves the app, and if what is between
the two has changed the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from gliner_bento.errors import GLiNERBentoError
from gliner_bento.gateway import request_id
from gliner_bento.gateway.access import Access
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, EndpointTable

ENDED = "gliner_bento.ended"
"""The key in an ASGI scope of a list. It gets an error if the server ends a body that is read while it arrives."""

_KEY = "gliner_bento.arrival"
_PREFIXED = re.compile("/models/([^/]+)(/.+)")
_FOLDERS = frozenset({"", "/static_content", "/playground", "/docs"})
"""Folders of the pages' files. Their routes redirect between the path with a slash and the path without it."""

_SOURCES = ("method", "path", "root_path", "query_string", "headers", "client", "server", "http_version")
"""What an arrival is made of."""


@dataclass(slots=True)
class Arrival:
    """A request whose headers have arrived.

    context: its tenant is the client's address if the request is not allowed. path: without the root path, without
    `/models/NAME`, and without slashes at its end. headers: by name in lower case, the first of each name. nearest: the
    endpoint of the path, for this or another method, whose errors have the same format. refused: why the request is not
    allowed; None if it is. source: see `Edge.arrival_of`. has_room: whether `EarlyRefusal` has found that a model has
    room for it.
    """

    context: Context
    method: str
    path: str
    headers: Mapping[str, str]
    nearest: Endpoint | None
    refused: GLiNERBentoError | None
    source: tuple[Any, ...]
    has_room: bool = False

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint of the path and the method."""
        return self.nearest if self.nearest and self.nearest.method == self.method else None

    @property
    def folders(self) -> int:
        """The number of folders in the path that was sent, which may end with a slash: so many `../` lead to `/`."""
        _, _, path, root_path, *_ = self.source
        return str(path).removeprefix(root_path or "").count("/") - 1


class Edge:
    """Finds out what a request's line and headers decide. table: all endpoints. access: who may call what."""

    def __init__(self, table: EndpointTable, access: Access) -> None:
        self._table = table
        self._access = access

    def arrive(self, scope: Scope) -> Arrival:
        """Make the arrival of a request whose headers are complete, and add it to `scope`."""
        source = self._source(scope)
        path, model = self._resolved(scope)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed([*scope["headers"]])}
        tenant, refused = self._access.admit(scope, headers, path)
        arrival = Arrival(
            context=Context(request_id.choose(headers.get(request_id.HEADER)), tenant, model),
            method=scope["method"],
            path=path,
            headers=headers,
            nearest=self._table.nearest(scope["method"], path),
            refused=refused,
            source=source,
        )
        scope[_KEY] = arrival
        return arrival

    def arrival_of(self, scope: Scope) -> Arrival:
        """The arrival in `scope`, if this edge has made it of the same request; else a new one. Between the protocol
        and the gateway may be middleware that changes a request, such as its headers or the client's address, or
        another gateway, with other keys."""
        known = scope.get(_KEY)
        if isinstance(known, Arrival) and known.source == self._source(scope):
            return known
        return self.arrive(scope)

    def _source(self, scope: Scope) -> tuple[Any, ...]:
        return (self, *map(scope.get, _SOURCES))

    def _resolved(self, scope: Scope) -> tuple[str, str | None]:
        """The path of the route, and the model that the URL names: `/models/NAME/path` or `/path?model=NAME`. A path
        that has an endpoint names no model."""
        path = _without_slashes(scope)
        prefixed = _PREFIXED.fullmatch(path) if path.startswith("/models/") else None
        if prefixed and self._table.find(prefixed[2])[0] and not self._table.find(path)[0]:
            return prefixed[2], prefixed[1]
        query = scope.get("query_string")
        return path, QueryParams(query).get("model") if query else None


class Entrance:
    """ASGI middleware, the outermost: for all others, the scope has the arrival, and the path of the route."""

    def __init__(self, app: ASGIApp, edge: Edge) -> None:
        self.app = app
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            arrival = self._edge.arrival_of(scope)
            path = scope.get("root_path", "") + arrival.path
            if path != scope["path"]:
                scope = {**scope, "path": path, "raw_path": quote(path).encode()}
        await self.app(scope, receive, send)


def arrival_in(scope: Scope) -> Arrival:
    """The arrival of a request that has passed `Entrance`."""
    arrival: Arrival = scope[_KEY]
    return arrival


def reads_lines(scope: Scope) -> bool:
    """Whether the body of a request, whose arrival has been made, is read while it arrives."""
    arrival = scope.get(_KEY)
    return isinstance(arrival, Arrival) and arrival.endpoint is not None and arrival.endpoint.reads_lines


def _without_slashes(scope: Scope) -> str:
    """The path without the root path, and without the slashes at its end: in a redirect, many clients lose the body of
    a POST. The slash of the root or of a folder stays, and one that is part of a name (`%2F`)."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    raw_path = scope.get("raw_path")
    if not path.endswith("/") or (raw_path and not raw_path.endswith(b"/")):
        return path
    shortened = path.rstrip("/")
    return path if shortened in _FOLDERS else shortened
