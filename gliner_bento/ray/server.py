"""The gateway's HTTP server over replicas on Ray, in a process that is not one of Ray's. Needs the extra `ray`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import uvicorn
from ray import serve
from starlette.applications import Starlette

from gliner_bento.gateway.http_protocol import ProtocolLimits
from gliner_bento.process.announcement import announce, url_of
from gliner_bento.process.app import gateway_app, mounted
from gliner_bento.process.run import run
from gliner_bento.ray.deployments import Handles, connect_fleets
from gliner_bento.settings import Settings
from gliner_bento.telemetry import log

_POLL_S = 0.05


class GatewayServer(uvicorn.Server):
    """The gateway's HTTP server over the replicas of `handles`. A signal ends it within `shutdown_timeout_s`."""

    def __init__(self, settings: Settings, handles: Handles, host: str, port: int) -> None:
        log.configure(settings)
        self._settings = settings
        self._handles = handles
        self._app = gateway_app(settings)
        self._limits = ProtocolLimits(self._app.options, self._app.early)
        http: Any = self._limits.protocol
        app = mounted(self._app, self._lifespan)
        super().__init__(
            uvicorn.Config(
                app, host=host, port=port, http=http, lifespan="on", log_config=None, access_log=False, ws="none"
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, once the replicas are ready, and print the address."""
        await super().startup(sockets)
        url = url_of({"host": self.config.host, "port": self.config.port}, {"http": {}})
        if self.started and url:
            announce(url, self._app.pages, self._settings)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        connect = partial(connect_fleets, self._handles)
        async with aclosing(run(self._settings, connect, self._app, connections=self._limits, raises=True)):
            while not await self._app.gateway.ready():  # noqa: ASYNC110  # polls the replicas, which send no event
                await asyncio.sleep(_POLL_S)
            yield
        await serve.shutdown_async()  # here, because Ray Serve's client belongs to this event loop
