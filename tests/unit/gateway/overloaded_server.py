"""An overloaded gateway under uvicorn, and connections to it, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket

import httpx
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from on_a_socket import address_of, in_this_loop
from overloading import overloaded
from waiting import PATIENCE_S

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.http_protocol import ProtocolLimits


class Connection:
    """A client's connection, byte by byte."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def answer(self, sent: bytes = b"") -> httpx.Response:
        """Sends, and reads one response."""
        self.writer.write(sent)
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        line, *lines = head.decode().split("\r\n")[:-2]
        headers = httpx.Headers([one.split(": ", 1) for one in lines])
        body = await self.reader.readexactly(int(headers["content-length"]))
        return httpx.Response(int(line.split()[1]), headers=headers, content=body)

    async def send(self, body: bytes) -> None:
        for start in range(0, len(body), 2**16):
            self.writer.write(body[start : start + 2**16])
            await self.writer.drain()

    async def closed(self) -> bool:
        """Waits until the server has closed it, without another byte."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S) == b""


class Served:
    """A gateway under uvicorn. reached: paths of the requests that its app was asked to answer."""

    def __init__(self, options, other):
        self.options = options
        self.replica = MemoryReplica()
        self.app = GatewayApp(options)
        self.app.bind({"busy": self.replica, other: MemoryReplica()} if other else self.replica)
        self.in_process = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://test")
        self.reached = []
        self.asked = []
        self.connections = []

    async def __call__(self, scope, receive, send):
        self.reached.append(scope["path"])
        await self.app(scope, receive, send)

    async def connect(self, buffer_bytes: int = 0) -> Connection:
        """A connection; with `buffer_bytes`, both ends have socket buffers of that size. They are set before it is
        made: TCP may stall for minutes where a window shrinks later."""
        client = socket.socket()
        listening = [one for server in self.server.servers for one in server.sockets]
        for one in (client, *listening) if buffer_bytes else ():
            for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                one.setsockopt(socket.SOL_SOCKET, buffer, buffer_bytes)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, self.address)
        connection = Connection(*await asyncio.open_connection(sock=client))
        self.connections.append(connection)
        return connection

    async def disconnect(self) -> None:
        for connection in self.connections:
            connection.writer.close()
            with contextlib.suppress(ConnectionError):
                await connection.writer.wait_closed()

    @property
    def arrival(self):
        """An extraction whose headers have arrived."""
        scope = {
            **{"type": "http", "method": "POST", "path": "/v1/extract", "headers": []},
            **{"client": ("127.0.0.1", 1), "server": self.address},
        }
        return self.app.early.arrive(scope)

    async def recover(self) -> None:
        self.replica.step = lambda: True
        assert {answer.status_code for answer in await asyncio.gather(*self.asked)} <= {200}


@contextlib.asynccontextmanager
async def serving(
    *, load: bool = True, key: str | None = None, other: str | None = None, direct: bool = False, **settings
):
    """An overloaded server. key: of the tenant whose requests overload it. other: the name of a second model, which is
    idle; the first is `busy`. direct: extractions do not reach the outer app. Nothing ends for want of time."""
    patient = {"request_timeout_s": 3000.0, "keep_alive_timeout_s": PATIENCE_S, "header_timeout_s": PATIENCE_S}
    served = Served(dataclasses.replace(OPTIONS, **patient | settings), other)
    http = ProtocolLimits(served.options, served.app.early, served.app if direct else None).protocol
    async with in_this_loop(served, http=http, log_config=None) as server:
        served.server, served.address = server, address_of(server)
        if load:
            headers = {"x-api-key": key} if key else {}
            served.asked = await overloaded(served.app, served.in_process, served.replica, **headers)
        try:
            yield served
        finally:
            await served.disconnect()
            await served.recover()
