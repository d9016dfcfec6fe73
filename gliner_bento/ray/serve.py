"""`gliner-bento serve --backend ray`: the gateway in this process, and replicas on a Ray cluster: an existing one, or
one on this machine, which ends with this process.

Requests do not pass Ray's proxy, which takes more CPU time than the gateway: limits on connections are the gateway's.
Ray's processes find this package where this process does, or installed on their node.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette

from gliner_bento import log
from gliner_bento.asgi import mounted
from gliner_bento.configuration import SettingsError
from gliner_bento.exits import exit_with, one_line, write_line
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.http_protocol import limit_connections
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.process.interpreter import prefer_throughput
from gliner_bento.process.shutdown import Shutdown
from gliner_bento.ray.options import FOR_THROUGHPUT, check
from gliner_bento.settings import Settings, load_or_exit
from gliner_bento.tracing import start_tracing

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

NAME = "gliner-bento"


def main(host: str, port: int) -> None:
    """Serve with the settings of the environment until SIGTERM or Ctrl+C. What cannot start ends the process with one
    line and exit code 1."""
    settings = load_or_exit()
    try:
        check(settings, proxied=False)
    except SettingsError as error:
        exit_with(str(error))
    os.environ |= FOR_THROUGHPUT | os.environ  # read by the import of Ray Serve, here and in a new cluster's processes
    try:
        import ray  # noqa: PLC0415
        from ray import serve  # noqa: PLC0415

        from gliner_bento.ray.app import replicas  # noqa: PLC0415
        from gliner_bento.ray.cluster import connect, reason  # noqa: PLC0415  # need the extra ray
    except ImportError as missing:
        exit_with(f"--backend ray: {one_line(missing)}; install gliner-bento[ray]")
    try:
        connect()
    except Exception as error:
        exit_with(f"Ray does not start: {one_line(error)}")
    for number in (signal.SIGINT, signal.SIGTERM):  # Ray has installed its own
        signal.signal(number, lambda *_: sys.exit(0))
    failure: str | None = None
    try:
        serve.start(proxy_location="Disabled")
        handle = serve.run(replicas(settings), name=NAME, route_prefix=None)
        Server(settings, handle, host, port).run()
    except Exception as error:
        failed = serve.status().applications.get(NAME)
        details = [deployment.message for deployment in failed.deployments.values()] if failed else []
        failure = reason(error, details)
    finally:
        serve.shutdown()
        ray.shutdown()
    if failure:
        exit_with(failure)


class Server(uvicorn.Server):
    """The gateway's HTTP server over the replicas of `handle`. A signal ends it within `shutdown_timeout_s`."""

    def __init__(self, settings: Settings, handle: DeploymentHandle, host: str, port: int) -> None:
        log.configure(settings)
        self._settings = settings
        self._handle = handle
        self._app = GatewayApp(settings.view(GatewayOptions))
        limit_connections(self._app.options, self._app.early)
        app = mounted(self._app, self._lifespan)
        super().__init__(
            uvicorn.Config(app, host=host, port=port, lifespan="on", log_config=None, access_log=False, ws="none")
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started:
            write_line(f"serving on http://{self.config.host}:{self.config.port} (Ctrl+C ends)")

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        from ray import serve  # noqa: PLC0415

        from gliner_bento import metrics  # noqa: PLC0415  # binds to its files at import
        from gliner_bento.replicas.ray.handle import RayReplica  # noqa: PLC0415  # needs the extra ray

        replica = RayReplica(self._handle, on_repeat=metrics.REPEATED_ITEMS.inc)
        self._app.bind(replica, start_tracing(self._settings), replica.metrics)
        loop = asyncio.get_running_loop()
        fail: Any = lambda: loop.call_soon_threadsafe(replica.fail)  # noqa: E731
        Shutdown(self._settings.shutdown_timeout_s, fail=fail).install()
        prefer_throughput()
        yield
        await serve.shutdown_async()  # closes what belongs to this event loop
