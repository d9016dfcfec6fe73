"""An ASGI app on a port, in a thread of this process: for clients with a transport of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn


@contextlib.contextmanager
def on_a_socket(app: Any, **options: Any) -> Iterator[str]:
    """Its URL. The port is bound before the app starts. options: uvicorn's; importing `service` changes the default of
    `http`."""
    quiet: dict[str, Any] = {"lifespan": "off", "log_level": "critical"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, **{"http": "httptools", **quiet, **options}))
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
