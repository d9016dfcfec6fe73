"""The gateway's HTTP server over replicas on Ray, in a process that is not one of Ray's. Needs the extra `ray`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette

from gliner_bento.asgi import mounted
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.http_protocol import Limits
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.process.announcement import announce, url_of
from gliner_bento.process.interpreter import prefer_throughput
from gliner_bento.process.shutdown import Shutdown
from gliner_bento.replicas.ray.handle import RayReplica
from gliner_bento.settings import Settings
from gliner_bento.telemetry import log
from gliner_bento.telemetry.tracing import start_tracing


class GatewayServer(uvicorn.Server):
    """The gateway's HTTP server over the replicas of `handle`. A signal ends it within `shutdown_timeout_s`."""

    def __init__(self, settings: Settings, handle: DeploymentHandle, host: str, port: int) -> None:
        log.configure(settings)
        self._settings = settings
        self._handle = handle
        self._app = GatewayApp(settings.view(GatewayOptions))
        http: Any = Limits(self._app.options, self._app.early).protocol
        app = mounted(self._app, self._lifespan)
        super().__init__(
            uvicorn.Config(
                app, host=host, port=port, http=http, lifespan="on", log_config=None, access_log=False, ws="none"
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. The replicas are ready."""
        await super().startup(sockets)
        url = url_of({"host": self.config.host, "port": self.config.port}, {"http": {}})
        if self.started and url:
            announce(url, self._app.pages, self._settings)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        from gliner_bento.telemetry import metrics  # noqa: PLC0415  # binds to its files at import

        replica = RayReplica(self._handle, on_repeat=metrics.REPEATED_ITEMS.inc)
        self._app.bind(replica, start_tracing(self._settings), replica.metrics)
        loop = asyncio.get_running_loop()
        Shutdown(self._settings.shutdown_timeout_s, fail=lambda: loop.call_soon_threadsafe(replica.fail)).install()
        prefer_throughput()
        yield
        await serve.shutdown_async()  # closes what belongs to this event loop
