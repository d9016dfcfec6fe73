"""An HTTP server in a replica's place that answers as its script says, also as no server should."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from replica_calls import run

from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.extraction import Entity, Extraction, Relation, RelationArgument

T = TypeVar("T")

ADA = Entity(0, 3, "Ada", "person", 0.9)
RESULT = Extraction(
    [ADA],
    [Relation("met", 0.8, *(RelationArgument(i, 0, 3, "Ada", "person") for i in (0, 0)))],
    truncated=True,
    truncated_at=7,
    usage=Usage(3, 9, 2, 1, 1),
)


def in_pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


class Drop(Exception):
    """Close the connection."""


Step = bytes | type[Drop] | asyncio.Event
"""A piece of the response; `Drop`; what is waited for, until the client leaves."""

HANG: Step = asyncio.Event()


class Scripted:
    """An HTTP server: the n-th request is answered by the n-th of `scripts`, later ones by the last.

    requests: bodies. left: clients that left while a script waited.
    """

    def __init__(self, *scripts: list[Step], status: str = "200 OK") -> None:
        self.scripts = scripts
        self.status = status
        self.requests: list[bytes] = []
        self.left = 0

    @asynccontextmanager
    async def replica(self, folder: Path) -> AsyncIterator[HttpReplica]:
        server = await asyncio.start_unix_server(self._serve, folder / "socket", limit=2**26)
        replica = HttpReplica((folder / "socket").as_uri(), "/replica")
        try:
            async with server:
                yield replica
        finally:
            await replica.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Drop, asyncio.IncompleteReadError):
            while True:
                self.requests.append(await _body(reader))
                script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
                await self._answer(script, reader, writer)
        writer.close()

    async def _answer(self, script: list[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun = False
        for step in script:
            if step is Drop:
                raise Drop
            if not begun:
                writer.write(f"HTTP/1.1 {self.status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
                begun = True
            if isinstance(step, bytes):
                writer.write(b"%x\r\n%s\r\n" % (len(step), step))
                await writer.drain()
                await asyncio.sleep(0)
            else:
                await reader.read()
                self.left += 1
                raise Drop
        writer.write(b"0\r\n\r\n" if begun else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r")[0]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def ask(scripted: Scripted, folder: Path, question: Callable[[HttpReplica], Awaitable[T]]) -> T:
    async def scene() -> T:
        async with scripted.replica(folder) as replica:
            return await question(replica)

    return run(scene)
