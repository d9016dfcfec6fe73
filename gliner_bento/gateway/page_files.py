"""Serves the files of a page from a folder, with a Content-Security-Policy for the browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from gliner_bento.errors import RouteNotFound


class PageFiles:
    """The files of a folder. policy: returns the Content-Security-Policy of a file."""

    def __init__(self, folder: Path, policy: Callable[[Path], str]) -> None:
        self._files = StaticFiles(directory=folder, check_dir=False)
        self._policy = policy

    async def get(self, path: str, request: Request) -> Response:
        """The file at `path`; if only `path`.gz exists, that file, sent as gzip. Raises `RouteNotFound`. Browsers check
        for changes at each use, because file names have no version."""
        try:
            response = await self._files.get_response(path, request.scope)
        except HTTPException:
            response = await self._compressed(path, request)
        response.headers["Cache-Control"] = "no-cache"
        if isinstance(response, FileResponse):
            response.headers["Content-Security-Policy"] = self._policy(Path(response.path))
        return response

    async def _compressed(self, path: str, request: Request) -> Response:
        try:
            response = await self._files.get_response(f"{path}.gz", request.scope)
        except HTTPException:
            raise RouteNotFound("no such route") from None
        response.headers["Content-Encoding"] = "gzip"
        return response
