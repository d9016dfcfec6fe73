"""The playground, a page that shows what the model extracts: its files, and their Content-Security-Policy.

The page is in pages/playground: plain modules and styles, without a build step; it calls the public API only.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.page_files import PageFiles

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Scripts and styles come from files only, and a string cannot become markup (Trusted Types)."""

_FILES = PageFiles(Path(__file__).parent / "pages" / "playground", lambda _: POLICY)


async def _page(_: Gateway, __: Context, request: Request) -> Response:
    return await _FILES.get("index.html", request)


async def _asset(_: Gateway, __: Context, request: Request) -> Response:
    """A file; `/playground/` redirects to `/playground`, because the page's links are relative to that."""
    path = request.path_params["file"]
    return await _FILES.get(path, request) if path else RedirectResponse("../playground", status_code=308)


ENDPOINTS = [
    Endpoint(method="GET", path="/playground", scope=None, handler=_page),
    Endpoint(method="GET", path="/playground/{file:path}", scope=None, handler=_asset),
]
