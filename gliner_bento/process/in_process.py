"""The server's API in this process, without a server: the gateway over a replica, called without a socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from gliner_bento.client import AsyncClient
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.process.instances import by_model
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.settings.marks import DAY_S, ForOneCaller, marked

URL = "http://in-process"


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[AsyncClient]:
    """A client of the default model of `settings`. Raises `StartupError`, `ModelError` included."""
    async with transport(settings) as asgi, AsyncClient(URL, timeout_s=DAY_S, transport=asgi) as client:
        yield client


@asynccontextmanager
async def transport(settings: Settings, compat: str = "none") -> AsyncIterator[httpx.ASGITransport]:
    """A transport that connects any httpx client to the default model, under `URL`. compat: the format of another
    server, served besides `/v1`. Raises what `in_process` raises.

    Leaving the context waits for running requests.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    default_model = next(iter(by_model(settings).values()))
    values = {name: mark.value for name, mark in marked(Settings, ForOneCaller).items()}
    for_one_caller = default_model.model_copy(update=values | {"compat": (compat,)})
    replica = LocalReplica.load(for_one_caller)
    try:
        app = GatewayApp(for_one_caller.view(GatewayOptions))
        app.bind(replica)
        yield httpx.ASGITransport(app)
        await asyncio.to_thread(replica.drain, settings.shutdown_timeout_s)
    finally:
        replica.close()
