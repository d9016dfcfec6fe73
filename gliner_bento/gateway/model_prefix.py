"""The model that a request's URL names, as `?model=NAME` or `/models/NAME/path`, in any wire format."""

from __future__ import annotations

import re
from contextvars import ContextVar
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from gliner_bento.gateway.endpoint import EndpointTable

_PREFIXED = re.compile("/models/([^/]+)(/.+)")
_current: ContextVar[str | None] = ContextVar("model", default=None)


def current() -> str | None:
    """The model that the URL of the current request names."""
    return _current.get()


class ModelPrefix:
    """ASGI middleware. Sets the model that `current` returns, and rewrites `/models/NAME/path` to `/path?model=NAME`,
    unless an endpoint has the original path.

    table: all endpoints. Must be outside all middleware that reads the path: access and limits are those of `/path`.
    """

    def __init__(self, app: ASGIApp, table: EndpointTable) -> None:
        self.app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            if "/models/" in scope["path"]:
                scope = self._rewritten(scope)
            _current.set(QueryParams(scope["query_string"]).get("model") if scope["query_string"] else None)
        await self.app(scope, receive, send)

    def _rewritten(self, scope: Scope) -> Scope:
        root = scope.get("root_path", "")
        path = scope["path"].removeprefix(root)
        match = _PREFIXED.fullmatch(path)
        if not match or self._table.has(path.rstrip("/")) or not self._table.has(match[2].rstrip("/")):
            return scope
        query = b"&".join(filter(None, (scope["query_string"], b"model=" + quote(match[1], safe="").encode())))
        path = root + match[2]
        return {**scope, "path": path, "raw_path": quote(path).encode(), "query_string": query}
