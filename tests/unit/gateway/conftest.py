"""A gateway over a replica that lives in the test: real requests, predictable answers."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from doubles.memory_adapters import MemoryManager
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.rates import Rates
from gliner_bento.replicas.base import Replica


async def foreign(request: Request):
    """Answers as a framework does: with the status in the query, and with a body that is not ours."""
    body = await request.body()
    status = int(request.query_params.get("status", 200))
    if status == 400:
        errors = [{"type": "missing", "loc": ("labels",), "msg": "Field required"}]
        return JSONResponse({"error": "1 validation error", "detail": errors}, status_code=400)
    if status == 599:
        raise RuntimeError("a fault outside every handler")
    return PlainTextResponse(f"read {len(body)}", status_code=status, headers={"Access-Control-Allow-Origin": "*"})


@pytest.fixture(autouse=True)
def no_rate_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of tenants' limits stands still, unless a test sets it."""
    begin = Rates.__init__
    monkeypatch.setattr(Rates, "__init__", lambda self, *limits: begin(self, *limits[:2], lambda: 0.0))


@pytest.fixture
def options() -> GatewayOptions:
    return OPTIONS


@pytest.fixture
def manager():
    """The adapters of the replica."""
    manager = MemoryManager()
    yield manager
    manager.proceed.set()


@pytest.fixture
def replica(manager: MemoryManager) -> MemoryReplica:
    return MemoryReplica(manager=manager)


@pytest.fixture
def gateway(replica: MemoryReplica, options: GatewayOptions) -> Gateway:
    return Gateway(replica, options)


@pytest.fixture
def app(replica: MemoryReplica, options: GatewayOptions) -> GatewayApp:
    """The gateway as it runs by itself."""
    app = GatewayApp(options)
    app.bind(replica)
    return app


@pytest.fixture
def client(app: GatewayApp) -> httpx.AsyncClient:
    return client_of(app)


@pytest.fixture
def beside_foreign_routes(app: GatewayApp) -> httpx.AsyncClient:
    """A client of the gateway in another framework's application, as in a BentoML service."""
    routes = [Route("/foreign", foreign, methods=["POST"]), Mount("/", app.routes)]
    middleware = [Middleware(kind, **arguments) for kind, arguments in app.middleware]
    return client_of(Starlette(routes=routes, middleware=middleware))


@pytest.fixture
def serving(options: GatewayOptions) -> Callable[..., httpx.AsyncClient]:
    """Makes a client of a gateway over any replica, with any options."""

    def serve(replica: Replica, options: GatewayOptions = options) -> httpx.AsyncClient:
        app = GatewayApp(options)
        app.bind(replica)
        return client_of(app)

    return serve


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
