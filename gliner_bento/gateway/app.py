"""The gateway as a plain ASGI app, with the endpoints that `v1/`, `compat/`, `mcp/` and the pages declare.

It runs on its own (under uvicorn or Ray Serve), or mounted in a BentoML service, where BentoML's own routes come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property, partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gliner_bento.gateway import documentation, playground
from gliner_bento.gateway.access import Access
from gliner_bento.gateway.compat import compat_endpoints
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.edge import Edge, Entrance, arrival_in
from gliner_bento.gateway.endpoint import Endpoint, EndpointTable
from gliner_bento.gateway.error_body import respond
from gliner_bento.gateway.gateway import Gateway, MetricsReader
from gliner_bento.gateway.media import JSON
from gliner_bento.gateway.middleware import GatewayMiddleware
from gliner_bento.gateway.models import Replicas
from gliner_bento.gateway.openapi import openapi_document
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.admission import Admission
from gliner_bento.gateway.refuse_early import EarlyRefusal
from gliner_bento.gateway.request_record import Recorder, RecordRequests, RequestTracer
from gliner_bento.gateway.security_headers import INDEX_PAGE, PLAYGROUND_LINK
from gliner_bento.gateway.v1 import adapters, documents, extract, models, redact, restore_stream, server
from gliner_bento.http.disconnect import CancelOnDisconnect
from gliner_bento.replicas.base import Models

_QUOTA_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
"""Request headers that OpenTelemetry's instrumentation adds in a browser."""
_CORS = {
    "allow_methods": ["GET", "POST", "PUT", "DELETE"],
    "allow_headers": [*("Authorization", "Content-Type", "X-API-Key", "X-Request-ID"), *_TRACE_HEADERS],
    "allow_private_network": True,
    "expose_headers": ["X-Request-ID", "Retry-After", *_QUOTA_HEADERS],
}


class GatewayApp:
    """The gateway's ASGI app. `bind` sets its replicas later: BentoML mounts `routes` before the service exists.

    pages: the paths of its HTML pages, by name.
    """

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self._gateway: Gateway | None = None
        v1 = [
            *(*extract.ENDPOINTS, *documents.ENDPOINTS, *redact.ENDPOINTS, *restore_stream.ENDPOINTS),
            *(*adapters.ENDPOINTS, *models.ENDPOINTS, *server.ENDPOINTS),
        ]
        self.endpoints = [*v1, *compat_endpoints(options), *(_mcp_endpoints() if options.enable_mcp else [])]
        self.pages = {
            **({"playground": "/playground"} if options.enable_playground else {}),
            **({"docs": "/docs"} if documentation.is_built() else {}),
            "API": "/",
        }
        self._index_page = INDEX_PAGE.read_text(encoding="utf-8")
        if not options.enable_playground:
            self._index_page = self._index_page.replace(PLAYGROUND_LINK, "")
        pages = [
            Endpoint(method="GET", path="/docs.json", scope=None, handler=self._openapi),
            Endpoint(method="GET", path="/", scope=None, handler=self._index),
            *(playground.ENDPOINTS if options.enable_playground else []),
            *documentation.endpoints(),
        ]
        table = EndpointTable([*self.endpoints, *pages])
        self._recorder = Recorder(table)
        self.admission = Admission(options)
        self._edge = Edge(EndpointTable(self.endpoints), Access(table, options))
        self.early = EarlyRefusal(self._edge, self.admission, self._recorder, cors=bool(options.cors_origins))
        self.routes = Starlette(routes=self._routes([*self.endpoints, *pages]))
        self.routes.router.redirect_slashes = False  # `Edge` removes trailing slashes
        self._stack: ASGIApp = self._serve
        for middleware_class, arguments in reversed(self.middleware):
            self._stack = middleware_class(self._stack, **arguments)

    @cached_property
    def document(self) -> str:
        """The OpenAPI document. Made when it is first asked for: a process's first one takes 0.25 s of CPU time."""
        return openapi_document(self.endpoints, needs_key=bool(self.options.api_keys))

    @property
    def middleware(self) -> list[tuple[Any, dict[str, Any]]]:
        """The ASGI middleware around `routes`, outermost first: classes and their arguments.

        `CancelOnDisconnect` may start an asyncio task; it is the innermost, so that refused requests start none.
        """
        options = self.options
        arguments = {"limits": options.body_limits, "admission": self.admission}
        cors = [(CORSMiddleware, {**_CORS, "allow_origins": options.cors_origins})] if options.cors_origins else []
        record = (RecordRequests, {"recorder": self._recorder})
        entrance = (Entrance, {"edge": self._edge})
        return [entrance, record, *cors, (GatewayMiddleware, arguments), (CancelOnDisconnect, {})]

    @property
    def gateway(self) -> Gateway:
        """The gateway that serves the routes."""
        assert self._gateway is not None, "bind a replica before serving"
        return self._gateway

    async def answer(
        self,
        request: Request,
        handler: Callable[[Gateway, Context, Any], Awaitable[Response]],
        content: Any,
        endpoint: Endpoint | None = None,
    ) -> Response:
        """The response of a handler. content: what it gets of the request: all, or the fields of its body."""
        context = arrival_in(request.scope).context
        answer = self._call(handler, context, content)
        more = (endpoint.statuses, endpoint.request, endpoint.error) if endpoint else ()
        return await respond(context, answer, *more)

    def bind(
        self,
        replicas: Replicas,
        tracer: RequestTracer | None = None,
        read_metrics: MetricsReader | None = None,
        models: Models | None = None,
    ) -> None:
        """Serve a replica, or several replicas by model name. read_metrics, models: see `Gateway`."""
        self._recorder.tracer = tracer
        self._gateway = Gateway(replicas, self.options, self._recorder.errors, read_metrics, models)
        self.admission.policies = self._gateway.models.policies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, with the middleware."""
        await self._stack(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the handler of the endpoint that `Edge` has found. Other paths, and those with parameters, take
        Starlette's router, whose layers cost a tenth of the time of a request."""
        endpoint = arrival_in(scope).endpoint if scope["type"] == "http" else None
        if endpoint is None or "{" in endpoint.path:
            await self.routes(scope, receive, send)
            return
        request = Request(scope, receive, send)
        response = await self.answer(request, endpoint.handler, request, endpoint)
        await response(scope, receive, send)

    def _routes(self, endpoints: Iterable[Endpoint]) -> list[Route]:
        """One route per path, so that the response to a wrong method lists the allowed ones."""
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            methods = by_path.setdefault(endpoint.path, {})
            if endpoint.method in methods:
                raise ValueError(f"two endpoints for {endpoint.method} {endpoint.path}")
            methods[endpoint.method] = endpoint
        return [Route(path, partial(self._handle, methods), methods=list(methods)) for path, methods in by_path.items()]

    async def _handle(self, methods: dict[str, Endpoint], request: Request) -> Response:
        endpoint = methods[request.method if request.method in methods else "GET"]  # HEAD is handled as GET
        return await self.answer(request, endpoint.handler, request, endpoint)

    async def _call(
        self, handler: Callable[[Gateway, Context, Any], Awaitable[Response]], context: Context, content: Any
    ) -> Response:
        if context.model is not None:  # the URL names it; it must exist even if the handler does not need it
            await self.gateway.served(context)
        return await handler(self.gateway, context, content)

    async def _openapi(self, *_: object) -> Response:
        document = await asyncio.to_thread(lambda: self.document)
        return Response(document, media_type=JSON)

    async def _index(self, *_: object) -> Response:
        return HTMLResponse(self._index_page)


class OwnReadiness:
    """ASGI middleware around BentoML's app. Serves /readyz from `routes`, which lists models that failed to load."""

    def __init__(self, app: ASGIApp, routes: ASGIApp) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        is_probe = scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) == "/readyz"
        await (self._routes if is_probe else self._app)(scope, receive, send)


def _mcp_endpoints() -> list[Endpoint]:
    from gliner_bento.gateway.mcp.route import ENDPOINTS  # noqa: PLC0415  # needs the extra mcp

    return ENDPOINTS
