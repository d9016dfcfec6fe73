"""The gateway's app as a process serves it, with the static files of its index page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Lifespan

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.settings import Settings


def gateway_app(settings: Settings) -> GatewayApp:
    """The gateway's app. The entry point has to limit connections, with `ProtocolLimits` or `limit_connections`."""
    return GatewayApp(settings.view(GatewayOptions))


def mounted(app: GatewayApp, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """The gateway's app for another server than BentoML: with the index page's static files, which BentoML ships."""
    spec = find_spec("bentoml")  # located, not imported
    folder = Path(spec.origin if spec and spec.origin else "").parent / "_internal" / "server" / "static_content"
    assets = [Mount("/static_content", StaticFiles(directory=folder))] if folder.is_dir() else []
    return Starlette(routes=[*assets, Mount("/", app)], lifespan=lifespan)
