"""The caller's side of the transport over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp

from gliner_bento.commands import RULES
from gliner_bento.http.connections import Connections
from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.messages import frame
from gliner_bento.replicas.remote import CONTROL_TIMEOUT_S, Connection, RemoteReplica

_DROPPED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, ConnectionError)
"""Errors of a connection that the server has closed. It may close an idle one just when a request is written to it."""

_REPEATABLE = {"status", "models", "abort", *(kind.__name__ for kind, rule in RULES.items() if rule.reads)}
"""Calls that are repeated over a new connection if theirs is closed. An extraction is repeated by the fleet, which
first asks the replica for its status: a connection to a dead process may stay open until its successor has started."""


class HttpReplica(RemoteReplica):
    """A `Replica` behind a `ReplicaApp`.

    url: http://... of the server, or file://... for a Unix socket. path: where the app is mounted.
    """

    def __init__(self, url: str, path: str = "") -> None:
        self.connection = HttpConnection(url, path)
        super().__init__(self.connection)

    async def close(self) -> None:
        """Close the connections."""
        await self.connection.close()


class HttpConnection(Connection):
    """Calls a `ReplicaApp`; closing a connection aborts its call."""

    def __init__(self, url: str, path: str) -> None:
        parts = urlsplit(url)
        self._socket = unquote(parts.path) if parts.scheme == "file" else None
        self._url = ("http://localhost" if self._socket else f"http://{parts.netloc}") + path
        self._connections = Connections(self._url, {}, socket=self._socket)
        self._session_or_none: aiohttp.ClientSession | None = None  # for bodies and responses in pieces

    def is_lost(self, error: Exception) -> bool:
        return isinstance(error, _DROPPED)

    async def call(self, method: str, message: bytes, archive: Archive | None = None) -> bytes:
        if archive is not None:
            return await self._upload(method, message, archive)
        response = await self._connections.send(message, f"/{method}")
        if not response.status.isdecimal() and method in _REPEATABLE:
            response = await self._connections.send(message, f"/{method}", new=True)
        if response.status == "200":
            return response.content
        if response.status.isdecimal():
            raise RuntimeError(f"the runner has answered {response.status}")
        raise ConnectionError(response.status)  # there was no response; `status` is the name of the error

    async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        response = await self._post("stream", message)
        try:
            while piece := await response.content.readany():
                yield piece
        finally:
            response.close()

    async def close(self) -> None:
        """Close the connections."""
        self._connections.close()
        if self._session_or_none:
            await self._session_or_none.close()

    async def _upload(self, method: str, message: bytes, archive: Archive) -> bytes:
        async def body() -> AsyncIterator[bytes]:
            yield frame(message)
            async for piece in archive:
                yield piece

        response = await self._post(f"upload/{method}", body())
        try:
            return await response.read()
        finally:
            response.close()  # the server may answer before it has read the whole body

    async def _post(self, path: str, body: Any) -> aiohttp.ClientResponse:
        return await self._session.post(f"{self._url}/{path}", data=body, raise_for_status=True)

    @property
    def _session(self) -> aiohttp.ClientSession:
        """The session, created at its first use because it belongs to a running event loop."""
        if self._session_or_none is None:
            unlimited = 0  # aiohttp's default is 100 connections
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(self._socket, limit=unlimited)
                if self._socket
                else aiohttp.TCPConnector(limit=unlimited)
            )
            no_timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONTROL_TIMEOUT_S)
            self._session_or_none = aiohttp.ClientSession(connector=connector, timeout=no_timeout)
        return self._session_or_none
