"""An ASGI app on a port, in this process: for clients with a transport of their own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

_QUIET: dict[str, Any] = {"http": "httptools", "lifespan": "off", "log_level": "critical"}


@contextlib.contextmanager
def on_a_socket(app: Any, **options: Any) -> Iterator[str]:
    """The URL of an app in a thread. The port is bound before the app starts. options: uvicorn's; importing `service`
    changes the default of `http`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, **_QUIET | options))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the app did not start"
                thread.join(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextlib.asynccontextmanager
async def in_this_loop(app: Any, **options: Any) -> AsyncIterator[uvicorn.Server]:
    """The server of an app in the running event loop. options: see `on_a_socket`."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, **_QUIET | options))
    running = asyncio.ensure_future(server.serve())
    try:
        while not server.started:
            assert not running.done(), "the app did not start"
            await asyncio.sleep(0.001)
        yield server
    finally:
        server.should_exit = True
        await running


def address_of(server: uvicorn.Server) -> tuple[str, int]:
    """The address of `in_this_loop`."""
    host, port = server.servers[0].sockets[0].getsockname()
    return host, port
