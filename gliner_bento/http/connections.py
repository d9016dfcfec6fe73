"""Keep-alive connections to one server, with little CPU time per request: for calls to the runner, and for the load
generator, which may run on the server's machine.

A request takes a third of the CPU time that it takes with aiohttp's client. Supports only HTTP/1.1, without redirects,
cookies, compression or retries.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

_FIRST_FINAL_STATUS = 200
"""An interim response, with a lower status, is followed by another response."""


@dataclass(slots=True)
class Response:
    """status: HTTP status, or the name of the error if there was no response. at_s: when it was complete, on the clock
    of `time.perf_counter`. retry_after: whether it has the header Retry-After."""

    status: str
    content: bytes = b""
    retry_after: bool = False
    at_s: float = 0.0


class Connections:
    """Sends POST requests to `url` and paths below it; a connection has one request under way at a time. If the future
    for a response is cancelled, its connection is closed.

    limit: maximum number of connections, beyond which requests wait; 0: no limit. socket: path of the server's Unix
    socket. opened: how many connections were opened.
    """

    def __init__(self, url: str, headers: Mapping[str, str], limit: int = 0, socket: str | None = None) -> None:
        parts = urlsplit(url)
        self._socket = socket
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._path, self._query = parts.path, f"?{parts.query}" if parts.query else ""
        lines = [f" HTTP/1.1\r\nHost: {parts.netloc}", *(f"{name}: {value}" for name, value in headers.items())]
        self._head_suffix = "\r\n".join([*lines, "Content-Length: "])
        self._head_of_path: dict[str, bytes] = {}
        self._limit = limit
        self._idle: deque[_Connection] = deque()
        self._waiting: deque[tuple[bytes, asyncio.Future[Response]]] = deque()
        self._open: set[_Connection] = set()
        self._opening: dict[asyncio.Task[None], asyncio.Future[Response]] = {}
        self.opened = 0

    def send(self, content: bytes, path: str = "", *, new: bool = False) -> asyncio.Future[Response]:
        """Send a request; returns a future for the response. path: below the URL; each path's headers are cached. new:
        over a new connection, because the server may close an idle one just when a request is written to it."""
        future = asyncio.get_running_loop().create_future()
        head = self._head_of_path.get(path) or self._new_head(path)
        request = b"%s%d\r\n\r\n%s" % (head, len(content), content)
        if self._idle and not new:  # the one that was used last, because the server closes those that are idle for long
            self._idle.pop().send(request, future)
        elif self._limit and len(self._open) + len(self._opening) >= self._limit:
            self._waiting.append((request, future))
        else:
            self._start_connecting(request, future)
        return future

    def _new_head(self, path: str) -> bytes:
        """Line and headers of requests to `path`, up to the value of Content-Length, which is the last header."""
        target = f"{self._path + path or '/'}{self._query}"
        head = self._head_of_path[path] = f"POST {target}{self._head_suffix}".encode()
        return head

    def close(self) -> None:
        """Close all connections; unanswered requests get an error as their response."""
        while waiting := self._next_waiting():
            _resolve(waiting[1], Response("ConnectionAbortedError"))
        for task, future in self._opening.items():
            task.cancel()
            _resolve(future, Response("ConnectionAbortedError"))
        for connection in list(self._open):
            connection.abort()

    def _start_connecting(self, request: bytes, future: asyncio.Future[Response]) -> None:
        task = asyncio.ensure_future(self._connect(request, future))
        self._opening[task] = future
        task.add_done_callback(self._opening.pop)

    async def _connect(self, request: bytes, future: asyncio.Future[Response]) -> None:
        loop = asyncio.get_running_loop()
        self.opened += 1
        try:
            if self._socket:
                transport, connection = await loop.create_unix_connection(lambda: _Connection(self), self._socket)
            else:
                transport, connection = await loop.create_connection(
                    lambda: _Connection(self), self._host, self._port, ssl=self._tls or None
                )
        except OSError as error:
            _resolve(future, Response(type(error).__name__))
            if waiting := self._next_waiting():
                self._start_connecting(*waiting)
            return
        connection.transport = transport
        self._open.add(connection)
        connection.send(request, future)

    def released(self, connection: _Connection, *, kept: bool) -> None:
        """Called when the request of a connection has ended. kept: whether the connection may be used again."""
        if not kept:
            self._replace(connection)
        elif waiting := self._next_waiting():
            connection.send(*waiting)
        else:
            self._idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        """Called when a connection has been closed."""
        if connection in self._idle:
            self._idle.remove(connection)
        self._replace(connection)

    def _replace(self, connection: _Connection) -> None:
        """Forget a connection; open another if requests wait."""
        if connection in self._open:
            self._open.remove(connection)
            if waiting := self._next_waiting():
                self._start_connecting(*waiting)

    def _next_waiting(self) -> tuple[bytes, asyncio.Future[Response]] | None:
        """The next waiting request that its caller has not cancelled."""
        while self._waiting:
            request, future = self._waiting.popleft()
            if not future.done():
                return request, future
        return None


class _Connection(asyncio.Protocol):
    """One connection, with at most one request under way. asyncio and the parser call all methods but `send` and
    `abort`. transport: set by `Connections`, because uvloop calls `connection_made` later than asyncio."""

    transport: asyncio.Transport

    def __init__(self, pool: Connections) -> None:
        self._pool = pool
        self._future: asyncio.Future[Response] | None = None
        self._response = Response("")
        self._content = bytearray()
        self._parser = httptools.HttpResponseParser(self)

    def send(self, request: bytes, future: asyncio.Future[Response]) -> None:
        self._future = future
        future.add_done_callback(self._abort_if_cancelled)
        self.transport.write(request)

    def abort(self) -> None:
        self.transport.abort()

    def _abort_if_cancelled(self, future: asyncio.Future[Response]) -> None:
        if future.cancelled() and future is self._future:  # else the response came first
            self.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(Response(type(error).__name__), kept=False)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Response(type(exc or ConnectionResetError()).__name__), kept=False)
        self._pool.lost(self)

    def on_message_begin(self) -> None:
        self._response = Response("")
        self._content = bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._response.retry_after = True

    def on_body(self, body: bytes) -> None:
        self._content += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL_STATUS:
            return
        self._response.status = str(status)
        self._response.content = bytes(self._content)
        kept = self._parser.should_keep_alive()
        self._end(self._response, kept=kept)
        if not kept:
            self.transport.close()

    def _end(self, response: Response, *, kept: bool) -> None:
        future, self._future = self._future, None
        if future is not None:
            _resolve(future, response)
            self._pool.released(self, kept=kept)


def _resolve(future: asyncio.Future[Response], response: Response) -> None:
    response.at_s = time.perf_counter()
    if not future.done():  # else the caller has cancelled it
        future.set_result(response)
