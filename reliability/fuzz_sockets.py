"""Bytes over sockets that no HTTP client sends: framing without end, pipelines, upgrades, bodies that do not come."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from benchmark.server import Server
from reliability.measurement import Target
from reliability.served import memory_watch

FLOOD_BYTES = 64 * 2**20
"""Larger than the buffers of both sockets, and than what a process may grow by."""
SILENT_CONNECTIONS = 800
MAX_CONNECTIONS = 500
"""Of the server, so that the silent ones take all."""
GROWTH_MB = 50.0
PIPELINED = 5000
PATIENCE_S = 60.0
_PIECE_BYTES = 2**16
_BODY = json.dumps({"text": "Tim Cook works at Apple.", "labels": ["person", "company"]}).encode()
_LONG = json.dumps({"text": "Tim Cook met Marie Curie in Paris . " * 800, "labels": ["person", "city"]}).encode()
_HEAD = b"POST /v1/extract HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_LENGTH = b"Content-Length: %d\r\n\r\n"
_WHOLE = _HEAD + _LENGTH % len(_BODY) + _BODY
_RUNNING = _HEAD + _LENGTH % len(_LONG) + _LONG
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x" % len(_BODY)
_TRAILERS = _CHUNKED + b"\r\n" + _BODY + b"\r\n0\r\n"
_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
_READYZ = b"GET /readyz HTTP/1.1\r\nHost: x\r\n"
_SHORT_LINES = b"X-A: yy\r\n" * (_PIECE_BYTES // 9)
_LONG_LINES = (b"X-A: " + b"y" * 1000 + b"\r\n") * 64

FLOODS = {
    "headers, short lines": (_LIVEZ, _SHORT_LINES),
    "a header without end": (_LIVEZ + b"X-A: ", b"y" * _PIECE_BYTES),
    "a path without end": (b"GET /", b"y" * _PIECE_BYTES),
    "blank lines": (b"", b"\r\n" * (_PIECE_BYTES // 2)),
    "trailers, short lines": (_TRAILERS, _SHORT_LINES),
    "trailers, long lines": (_TRAILERS, _LONG_LINES),
    "a trailer without end": (_TRAILERS + b"X-A: ", b"y" * _PIECE_BYTES),
    "a chunk extension without end": (_CHUNKED + b";", b"y" * _PIECE_BYTES),
    "a chunk size without end": (_CHUNKED.removesuffix(b"%x" % len(_BODY)), b"0" * _PIECE_BYTES),
    "chunk extensions": (_CHUNKED + b"\r\n" + _BODY + b"\r\n", (b"1;" + b"y" * 1000 + b"\r\n \r\n") * 64),
    "pipelined headers, short lines": (_RUNNING + _LIVEZ, _SHORT_LINES),
    "a pipelined header without end": (_RUNNING + _LIVEZ + b"X-A: ", b"y" * _PIECE_BYTES),
    "a pipelined path without end": (_RUNNING + b"GET /", b"y" * _PIECE_BYTES),
    "pipelined trailers": (_RUNNING + _TRAILERS, _SHORT_LINES),
}
"""What a connection begins with, and what is repeated until the server ends it."""

UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQ\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    "TLS/1.0": b"Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
    "without Connection": b"Upgrade: h2c\r\n",
}


class Sockets:
    """Connections to a server at `url`. Heads of requests are cut at random places."""

    def __init__(self, url: str, seed: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._address = parts.hostname, parts.port
        self._random = random.Random(seed)

    def flood(self, head: bytes, piece: bytes) -> int | None:
        """Number of bytes that the server took before it closed the connection; None if it did not."""
        sent = 0
        with self._connection() as connection:
            try:
                self._send(connection, head)
                while sent < FLOOD_BYTES:
                    connection.sendall(piece)
                    sent += len(piece)
            except TimeoutError:
                return None
            except OSError:
                return sent
        return None

    def upgrade(self, offer: bytes) -> bool:
        """Whether a request that offers another protocol is answered, and so is the next on its connection."""
        with contextlib.suppress(OSError, http.client.HTTPException), self._connection() as connection:
            for _ in range(2):
                self._send(connection, _WHOLE.replace(b"\r\n\r\n", b"\r\n" + offer + b"\r\n", 1))
                response = http.client.HTTPResponse(connection)
                response.begin()
                if response.status != 200 or not json.loads(response.read())["entities"]:
                    return False
            return True
        return False

    def pipelined(self) -> int:
        """Number of successes of `PIPELINED` requests, the first of which takes a while."""
        with self._connection() as connection:
            last = _LIVEZ + b"Connection: close\r\n\r\n"
            self._send(connection, _RUNNING + (_LIVEZ + b"\r\n") * (PIPELINED - 2) + last)
            return _successes(connection)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """While the block runs, `SILENT_CONNECTIONS` await the rest of bodies."""
        with contextlib.ExitStack() as stack:
            for _ in range(SILENT_CONNECTIONS):
                with contextlib.suppress(OSError):
                    stack.enter_context(self._connection()).sendall(_HEAD + _LENGTH % 60_000 + b"{")
            yield

    def answered(self, request: bytes) -> bool:
        """Whether a request on a connection of its own succeeds."""
        with contextlib.suppress(OSError), self._connection() as connection:
            self._send(connection, request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            return _successes(connection) == 1
        return False

    def _connection(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=PATIENCE_S)

    def _send(self, connection: socket.socket, data: bytes) -> None:
        while data:
            size = self._random.choice((1, 7, 100, 5000, _PIECE_BYTES))
            connection.sendall(data[:size])
            data = data[size:]


def _successes(connection: socket.socket) -> int:
    """Number of responses 200 until the server closes the connection."""
    received = bytearray()
    with contextlib.suppress(OSError):
        while data := connection.recv(_PIECE_BYTES):
            received += data
    return received.count(b"HTTP/1.1 200 ")


def attack(server: Server, seed: int) -> tuple[list[Target], dict[str, Any]]:
    """The targets, and facts: bytes taken of each flood, growth of each process in MB."""
    sockets = Sockets(server.url, seed)
    sockets.answered(_RUNNING)  # what the first long text allocates is no growth
    with memory_watch(server, every_s=0.2) as samples:
        taken = {name: sockets.flood(head, piece) for name, (head, piece) in FLOODS.items()}
        lost = [name for name, offer in UPGRADES.items() if not sockets.upgrade(offer)]
        pipelined = sockets.pipelined()
        with sockets.silent():
            refused = [
                request for request in (_LIVEZ + b"\r\n", _READYZ + b"\r\n", _WHOLE) if not sockets.answered(request)
            ]
    before = samples[0][1]
    growth = {name: max(sizes.get(name, 0.0) for _, sizes in samples) - size for name, size in before.items()}
    targets = [
        Target("floods that the server did not end", "", list(taken.values()).count(None), 0),
        Target("requests that offer another protocol, not answered", "", len(lost), 0),
        Target("pipelined requests, not answered", "", PIPELINED - pipelined, 0),
        Target("requests beside silent ones, not answered", "", len(refused), 0),
        Target("growth of a process during these", "MB", max(growth.values(), default=None), GROWTH_MB),
    ]
    return targets, {"flood_bytes_taken": taken, "upgrades_lost": lost, "growth_mb": growth}
