"""The documentation's site at `/docs`: the files that `make docs` builds, and their Content-Security-Policy.

If there is no site, `/docs` is a page that says so: in a clone, how to build it, and the site is then served without a
restart; anywhere else, which packages have it.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.page_files import PageFiles
from gliner_bento.gateway.security_headers import page_policy

FOLDER = Path(__file__).parent / "pages" / "docs"
SOURCES = FOLDER.parents[3] / "docs" / "index.md"
"""What a clone has, and a wheel, a bento and an image have not."""

_NOT_BUILT = Path(__file__).parent / "pages" / "docs-not-built.html"
_IN_A_CLONE = """Run <code>make docs</code> (under a minute), then reload this page: the server needs no restart. The
same pages are Markdown files in the folder <code>docs</code>."""
_INSTALLED = """This server was installed without it. The repository has the same pages as Markdown files in its folder
<code>docs</code>; a server's wheel of <code>make wheel</code>, a bento and an image have the site."""


def is_built(folder: Path = FOLDER) -> bool:
    """Whether there is a site to serve."""
    return (folder / "index.html").is_file()


def can_be_built() -> bool:
    """Whether the server runs from a clone of the repository."""
    return SOURCES.is_file()


def endpoints(folder: Path = FOLDER) -> list[Endpoint]:
    """The routes of the site in `folder`."""
    files = PageFiles(folder, _policy)

    async def index(*_: object) -> Response:
        if is_built(folder):
            return RedirectResponse("docs/index.html", status_code=307)
        page = _NOT_BUILT.read_text(encoding="utf-8").replace("{how}", _IN_A_CLONE if can_be_built() else _INSTALLED)
        return HTMLResponse(page, headers={"Cache-Control": "no-cache"})

    async def file(_: Gateway, __: Context, request: Request) -> Response:
        """A file of the site; for the path `/docs/`, the first page."""
        path = request.path_params["file"] or "index.html"
        if path == "index.html" and not is_built(folder):
            return RedirectResponse("../docs", status_code=307)
        return await files.get(path, request)

    return [
        Endpoint(method="GET", path="/docs", scope=None, handler=index),
        Endpoint(method="GET", path="/docs/{file:path}", scope=None, handler=file),
    ]


def _policy(file: Path) -> str:
    """The Content-Security-Policy of a file. It allows a web worker, which the site's search needs."""
    page = file.read_text(encoding="utf-8") if file.suffix == ".html" else ""
    return f"{page_policy(page)}; worker-src 'self'"
