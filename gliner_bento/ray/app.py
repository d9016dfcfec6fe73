"""The Ray Serve application: gateways behind Ray's proxy, in front of replicas. docs/scaling.md describes it.

serve run gliner_bento.ray.app:build max_instances=4
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ray import serve
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gliner_bento.process.app import gateway_app, mounted
from gliner_bento.process.port import check_access
from gliner_bento.process.run import run
from gliner_bento.ray.deployments import Handles, connect_fleets, replica_applications
from gliner_bento.ray.options import check, gateway_options
from gliner_bento.settings import Settings
from gliner_bento.settings.models import split_models

REQUEST_ID = b"x-request-id"


class WithoutRequestId:
    """ASGI middleware: removes our header X-Request-ID, because Ray's proxy adds one to each response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""

        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [header for header in message["headers"] if header[0] != REQUEST_ID]
            await send(message)

        await self._app(scope, receive, send_without)


@serve.ingress()
class RayGateway:
    """The gateway's ASGI app over all replicas."""

    def __init__(self, settings: Settings, replicas: Handles) -> None:
        self._settings = settings
        self._replicas = replicas

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Ray in the event loop of the requests."""
        app = gateway_app(self._settings)
        run(self._settings, partial(connect_fleets, self._replicas), app, service="GLiNERGateway", raises=True)
        return WithoutRequestId(mounted(app))


def build(arguments: dict[str, Any]) -> serve.Application:
    """The application with the settings in `arguments`, which override the environment and the file.

    Ray decides the address, so API keys or `allow_anonymous` are required. Raises `SettingsError`.
    """
    values = split_models(arguments)
    settings = Settings.load({name: value if isinstance(value, dict) else str(value) for name, value in values.items()})
    check_access("0.0.0.0", settings)
    return application(settings)


def application(settings: Settings) -> serve.Application:
    """The gateways and replicas. Raises `SettingsError` for settings that have no effect. Ray must be connected."""
    check(settings, proxied=True)
    gateway = serve.deployment(RayGateway, name="GLiNERGateway", **gateway_options(settings))
    return gateway.bind(settings, replica_applications(settings))
