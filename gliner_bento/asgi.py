"""The server without BentoML: the gateway over a replica in the same process.

uvicorn gliner_bento.asgi:create_app --factory --port 3000 --http gliner_bento.gateway.http_protocol:HttpProtocol

Without `--http`, the limits on connections do not apply.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from starlette.applications import Starlette

from gliner_bento.gateway.http_protocol import STATE, ProtocolLimits
from gliner_bento.process.app import gateway_app, mounted
from gliner_bento.process.exits import exit_with, load_or_exit
from gliner_bento.process.port import check_address_or_exit
from gliner_bento.process.run import load_models, run
from gliner_bento.settings import Settings
from gliner_bento.telemetry import log


def create_app(settings: Settings | None = None) -> Starlette:
    """An ASGI app that loads the models when it starts, and finishes running requests when it stops."""
    settings = settings or load_or_exit()
    if settings.num_instances > 1 or settings.max_instances:
        name = "num_instances" if settings.num_instances > 1 else "max_instances"
        exit_with(f"{name}: this app is one process; start `gliner-bento serve`, or leave {name} out")
    check_address_or_exit("uvicorn", settings, "127.0.0.1")
    log.configure(settings)  # before uvicorn's first lines
    app = gateway_app(settings)
    limits = ProtocolLimits(app.options, app.early)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, ProtocolLimits]]:
        async with aclosing(run(settings, load_models, app, connections=limits)):
            yield {STATE: limits}

    return mounted(app, lifespan)
