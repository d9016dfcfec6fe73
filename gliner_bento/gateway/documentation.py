"""The documentation's site at `/docs`, where `make docs` has built it: its files, and the policy for the browser."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.page_files import PageFiles
from gliner_bento.gateway.security_headers import page_policy

FOLDER = Path(__file__).parent / "pages" / "docs"


def is_built(folder: Path = FOLDER) -> bool:
    """Whether there is a site to serve."""
    return (folder / "index.html").is_file()


def endpoints(folder: Path = FOLDER) -> list[Endpoint]:
    """The routes of the site; none if it has not been built."""
    files = PageFiles(folder, _policy)

    async def start(_: Gateway, __: Request) -> Response:
        return RedirectResponse("docs/index.html", status_code=307)

    async def file(_: Gateway, request: Request) -> Response:
        """A file; the folder itself is its first page."""
        return await files.get(request.path_params["file"] or "index.html", request)

    if not is_built(folder):
        return []
    return [
        Endpoint(method="GET", path="/docs", scope=None, answer=start),
        Endpoint(method="GET", path="/docs/{file:path}", scope=None, answer=file),
    ]


def _policy(file: Path) -> str:
    """The site searches in a worker, and the styles of its theme are partly in the pages."""
    page = file.read_text(encoding="utf-8") if file.suffix == ".html" else ""
    return f"{page_policy(page)}; worker-src 'self'"
