"""The documentation's site at `/docs`: the files that `make docs` builds, and their Content-Security-Policy.

If the site is not built, `/docs` is a page that says how to build it. A site that is built later is served without a
restart.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.page_files import PageFiles
from gliner_bento.gateway.security_headers import page_policy

FOLDER = Path(__file__).parent / "pages" / "docs"
_NOT_BUILT = Path(__file__).parent / "pages" / "docs-not-built.html"


def is_built(folder: Path = FOLDER) -> bool:
    """Whether there is a site to serve."""
    return (folder / "index.html").is_file()


def endpoints(folder: Path = FOLDER) -> list[Endpoint]:
    """The routes of the site in `folder`."""
    files = PageFiles(folder, _policy)

    async def index(_: Gateway, __: Request) -> Response:
        if is_built(folder):
            return RedirectResponse("docs/index.html", status_code=307)
        return FileResponse(_NOT_BUILT, headers={"Cache-Control": "no-cache"})

    async def file(_: Gateway, request: Request) -> Response:
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
