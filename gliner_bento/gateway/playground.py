"""The playground, a page that shows what the model extracts: its files, and the policy for the browser.

The page is in pages/playground: plain modules and styles, without a build step; it calls the public API only.
"""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from gliner_bento.errors import RouteNotFound
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.gateway import Gateway

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Scripts and styles from files only; a string cannot become markup (Trusted Types)."""

_FILES = StaticFiles(directory=Path(__file__).parent / "pages" / "playground")


async def _page(_: Gateway, request: Request) -> Response:
    return await _file("index.html", request)


async def _asset(_: Gateway, request: Request) -> Response:
    """A file; the folder itself redirects to the page, whose links are relative to `/playground`."""
    path = request.path_params["file"]
    return await _file(path, request) if path else RedirectResponse("../playground", status_code=308)


async def _file(path: str, request: Request) -> Response:
    """Raises RouteNotFound. Browsers ask each time whether a file has changed: its name has no version."""
    try:
        response = await _FILES.get_response(path, request.scope)
    except HTTPException:
        raise RouteNotFound("no such route") from None
    response.headers["Cache-Control"] = "no-cache"
    response.headers["Content-Security-Policy"] = POLICY
    return response


ENDPOINTS = [
    Endpoint(method="GET", path="/playground", scope=None, answer=_page),
    Endpoint(method="GET", path="/playground/{file:path}", scope=None, answer=_asset),
]
