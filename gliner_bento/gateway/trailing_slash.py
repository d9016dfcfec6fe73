"""Serves a path that ends in a slash as the path without it: in a redirect, many clients lose the body of a POST."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

_FOLDERS = frozenset({"", "/static_content", "/playground", "/docs"})
"""Folders of the pages' files. Their routes redirect between the path with a slash and the path without it."""


class TrailingSlash:
    """ASGI middleware. Removes the slashes at the end of a request's path, below the root path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope = _without_slash(scope)
        await self.app(scope, receive, send)


def _without_slash(scope: Scope) -> Scope:
    """The scope without the slash; unchanged for the root, a folder, or a slash that is part of a name (`%2F`)."""
    raw_path = scope.get("raw_path")
    if raw_path and not raw_path.endswith(b"/"):
        return scope
    path = scope["path"].rstrip("/")
    if path.removeprefix(scope.get("root_path", "")) in _FOLDERS:
        return scope
    return {**scope, "path": path, "raw_path": raw_path.rstrip(b"/") if raw_path else None}
