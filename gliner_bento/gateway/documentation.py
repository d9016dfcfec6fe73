"""The documentation's site at `/docs`: the files that `make docs` builds, and their Content-Security-Policy.

If there is no site, `/docs` is a page that says so: in a clone, how to build it, and the site is then served without a
restart; anywhere else, which packages have it. A browser that asks for a file that does not exist gets a page, too.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gliner_bento.errors import RouteNotFound
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.edge import arrival_in
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.page_files import PageFiles
from gliner_bento.gateway.security_headers import page_policy

FOLDER = Path(__file__).parent / "pages" / "docs"
SOURCES = FOLDER.parents[3] / "docs" / "index.md"
"""What a clone has, and an installed package, a bento and an image have not."""

_NO_PAGE = (Path(__file__).parent / "pages" / "no-docs-page.html").read_text(encoding="utf-8")
_IN_A_CLONE = """Run <code>make docs</code> (under a minute), then reload this page: the server needs no restart. The
same pages are Markdown files in the folder <code>docs</code>."""
_INSTALLED = """This server was installed without it. The repository has the same pages as Markdown files in its folder
<code>docs</code>; the package on the index, a bento and an image have the site."""
_MISSING = 'The <a href="{up}docs/all-pages.html">list of all pages</a> and the search have what there is.'


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
        return RedirectResponse("docs/index.html", status_code=307) if is_built(folder) else _not_built(200)

    async def file(_: Gateway, context: Context, request: Request) -> Response:
        """A file of the site; for the path `/docs/`, the first page."""
        path = request.path_params["file"] or "index.html"
        if path == "index.html" and not is_built(folder):
            return RedirectResponse("../docs", status_code=307)
        try:
            return await files.get(path, request)
        except RouteNotFound as error:
            if "text/html" not in request.headers.get("accept", ""):
                raise
            context.record.error = error.code
            up = "../" * arrival_in(request.scope).folders
            return _page(404, "No such page", _MISSING, up) if is_built(folder) else _not_built(404, up)

    return [
        Endpoint(method="GET", path="/docs", scope=None, handler=index),
        Endpoint(method="GET", path="/docs/{file:path}", scope=None, handler=file),
    ]


def _not_built(status: int, up: str = "./") -> Response:
    return _page(status, "No documentation site", _IN_A_CLONE if can_be_built() else _INSTALLED, up)


def _page(status: int, title: str, text: str, up: str) -> Response:
    """A page about a missing page. up: the relative URL of the server's root."""
    content = _NO_PAGE.replace("{title}", title).replace("{text}", text).replace("{up}", up)
    return HTMLResponse(content, status_code=status, headers={"Cache-Control": "no-cache"})


def _policy(file: Path) -> str:
    """The Content-Security-Policy of a file. It allows a web worker, which the site's search needs."""
    page = file.read_text(encoding="utf-8") if file.suffix == ".html" else ""
    return f"{page_policy(page)}; worker-src 'self'"
