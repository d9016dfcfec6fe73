"""The server's API in this process, without a server: the gateway over a replica, called without a socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gliner_bento.client import AsyncClient
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.process.instances import by_model
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings

URL = "http://in-process"
_DAY_S = 86_400.0
_ONE_CALLER: dict[str, Any] = {
    "num_instances": 1,
    "max_instances": 0,
    "api_keys": None,
    "tenant_header": None,
    "max_queue_wait_s": 0.0,
    "request_timeout_s": _DAY_S,
    "max_queued_tokens": 0,
    "max_tenant_concurrency": 0,
    "max_tenant_requests_per_s": 0.0,
    "warmup_iterations": 0,
    "enable_playground": False,
}
"""Settings without the limits that protect a server from its clients: the only client is the caller."""


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[AsyncClient]:
    """A client of the default model of `settings`. Raises `StartupError`, `ModelError` included."""
    async with transport(settings) as asgi, AsyncClient(URL, timeout_s=_DAY_S, transport=asgi) as client:
        yield client


@asynccontextmanager
async def transport(settings: Settings, compat: str = "none") -> AsyncIterator[httpx.ASGITransport]:
    """A transport that connects any httpx client to the default model, under `URL`. compat: the format of another
    server, served besides `/v1`. Raises what `in_process` raises.

    Leaving the context waits for running requests.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    default_model = next(iter(by_model(settings).values()))
    for_one_caller = default_model.model_copy(update=_ONE_CALLER | {"compat": (compat,)})
    replica = LocalReplica.load(for_one_caller)
    try:
        app = GatewayApp(for_one_caller.view(GatewayOptions))
        app.bind(replica)
        yield httpx.ASGITransport(app)
        await asyncio.to_thread(replica.drain, settings.shutdown_timeout_s)
    finally:
        replica.close()
