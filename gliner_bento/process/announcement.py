"""The lines that a server prints once it is ready: its address, its pages, and a request to try."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT

logger = logging.getLogger(__name__)

ADDRESS = "_GLINER_ADDRESS"
"""Environment variable: the URL of the server that this process is a part of."""

_POLL_S = 0.1
_EVERYWHERE = ("0.0.0.0", "::")
_REQUEST = '{"text": "Ada Lovelace lived in London.", "labels": ["person", "city"]}'


def url_of(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """The URL of a server; None if its port is not known. arguments: of the command line of `bentoml serve`.
    options: of the service; the arguments override them."""
    given = {name: value for name, value in arguments.items() if value is not None}
    host, port = (given.get(name, options["http"].get(name)) for name in ("host", "port"))
    if not port or arguments.get("fd") or arguments.get("uds"):
        return None
    if host in _EVERYWHERE:
        host = "localhost"
    elif ":" in host:
        host = f"[{host}]"
    tls = arguments.get("ssl_certfile") or options.get("ssl", {}).get("enabled")
    return f"{'https' if tls else 'http'}://{host}:{port}"


def announcement(url: str, pages: Mapping[str, str], *, needs_key: bool) -> str:
    """The lines as a text for people. pages: the path of each page, by its name."""
    key = "-H 'Authorization: Bearer YOUR_KEY' " if needs_key else ""
    request = f"curl -s {url}/v1/extract {key}-H 'Content-Type: application/json' -d {shlex.quote(_REQUEST)}"
    rows = {**{name: url + path for name, path in pages.items()}, "try": request}
    if "docs" not in pages and (PROJECT_ROOT / "docs" / "index.md").is_file():  # a clone
        rows["docs"] = "docs/index.md; `make docs` puts them at /docs"
    return "".join([f"gliner-bento: ready on {url}\n", *(f"  {name:<11} {row}\n" for name, row in rows.items())])


def announce(url: str, pages: Mapping[str, str], settings: Settings) -> None:
    """Write the lines to standard error; with `log_format=json`, a record to the log instead."""
    if settings.log_format == "json":
        logger.info("ready on %s", url, extra={"fields": {name: url + path for name, path in pages.items()}})
    elif logger.isEnabledFor(logging.INFO):
        sys.stderr.write(announcement(url, pages, needs_key=settings.api_keys is not None))
        sys.stderr.flush()


async def announce_when(
    ready: Callable[[], Awaitable[bool]], pages: Mapping[str, str], settings: Settings, folder: Path | None
) -> None:
    """Wait until the server is ready, and announce it, unless another process of the server has done so.

    folder: the supervisor's, which all processes share.
    """
    url = os.environ.get(ADDRESS)
    if not url or not folder:
        return
    while not await ready():  # noqa: ASYNC110  # polls the replica, which sends no event
        await asyncio.sleep(_POLL_S)
    try:
        (folder / "announced").touch(exist_ok=False)
    except OSError:
        return  # another process has announced it, or the supervisor has ended
    announce(url, pages, settings)
