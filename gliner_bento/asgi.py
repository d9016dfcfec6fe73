"""The server without BentoML: the gateway over a replica in the same process.

uvicorn gliner_bento.asgi:create_app --factory --port 3000 --http gliner_bento.gateway.http_protocol:HttpProtocol

Without `--http`, the limits on connections do not apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Lifespan

from gliner_bento.exits import exit_with
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.http_protocol import STATE, Limits
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.process.port import check_address_or_exit
from gliner_bento.process.supervision import ServiceProcess
from gliner_bento.replicas.local import LocalReplica
from gliner_bento.settings import Settings, load_or_exit
from gliner_bento.telemetry import log
from gliner_bento.telemetry.tracing import start_tracing


def create_app(settings: Settings | None = None) -> Starlette:
    """An ASGI app that loads the model when it starts, and drains when it stops."""
    settings = settings or load_or_exit()
    if settings.num_instances > 1 or settings.max_instances:
        name = "num_instances" if settings.num_instances > 1 else "max_instances"
        exit_with(f"{name}: this app is one process; start `gliner-bento serve`, or leave {name} out")
    log.configure(settings)
    check_address_or_exit("uvicorn", settings, "127.0.0.1")
    app = GatewayApp(settings.view(GatewayOptions))
    limits = Limits(app.options, app.early)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        from gliner_bento.telemetry.metrics import PrometheusObserver  # noqa: PLC0415  # binds to its files at import

        process = ServiceProcess("gliner-bento", settings)
        with process.starting():
            tracing = start_tracing(settings)
            replica = LocalReplica.load(settings, PrometheusObserver(), process.end_hung, tracing)
        app.bind(replica, tracing)
        process.serve(fail=replica.close)
        try:
            yield {STATE: limits}
        finally:
            await asyncio.to_thread(replica.drain, settings.shutdown_timeout_s)
            replica.close()

    return mounted(app, lifespan)


def mounted(app: GatewayApp, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """The gateway's app with the static files of its index page."""
    return Starlette(routes=[*swagger_assets(), Mount("/", app)], lifespan=lifespan)


def swagger_assets() -> list[Mount]:
    """The index page's static files, which BentoML ships. Locates its package without importing it."""
    spec = find_spec("bentoml")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "_internal" / "server" / "static_content"
    return [Mount("/static_content", StaticFiles(directory=folder))] if folder.is_dir() else []
