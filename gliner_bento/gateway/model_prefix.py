"""Serves every route also below `/models/NAME`, for that model: a client of any format names it in its base URL."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send

from gliner_bento.gateway.endpoint import EndpointTable

_PREFIXED = re.compile("/models/([^/]+)(/.+)")


class ModelPrefix:
    """ASGI middleware. Rewrites `/models/NAME/path` to `/path?model=NAME` unless it is the path of an endpoint itself.

    table: all endpoints. Outside all middleware that looks at the path: access and limits are those of the route.
    """

    def __init__(self, app: ASGIApp, table: EndpointTable) -> None:
        self.app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http" and "/models/" in scope["path"]:
            scope = self._rewritten(scope)
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
