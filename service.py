"""The bento: GLiNERService in front of GLiNERRunner. Start reading here; docs/architecture.md has an overview."""

from __future__ import annotations

from functools import partial
from typing import Any

import bentoml

from gliner_bento.gateway.app import OwnReadiness
from gliner_bento.gateway.http_protocol import limit_connections
from gliner_bento.gateway.json_body import ReadableBody
from gliner_bento.gateway.v1.extract import answer_batch, answer_one
from gliner_bento.process.app import gateway_app
from gliner_bento.process.bentoml_options import bentoml_options, handles_requests
from gliner_bento.process.run import run
from gliner_bento.process.supervision import supervise
from gliner_bento.tasks.extraction import ExtractBatchResponse, ExtractResponse
from gliner_bento.tasks.requests import ExtractBatchRequest, ExtractRequest
from runners.instances import GatewayService, connect, depend_on_runners, settings

app = gateway_app(settings)
limits = limit_connections(app.options, app.early, direct=None if handles_requests(settings) else app)


@bentoml.service(name="GLiNERService", service_class=GatewayService, **bentoml_options(settings, "GLiNERService"))
@bentoml.asgi_app(app.routes, path="/")
@depend_on_runners
class GLiNERService:
    """Zero-shot named entities and relations over HTTP.

    The two routes below are for BentoML's clients, which take the routes' schemas from the annotations. Both get the
    fields of the body, and return a finished response, which BentoML sends unchanged. The gateway app serves all other
    routes. It also serves these two directly, unless an option of BentoML applies to requests (`handles_requests`).
    """

    def __init__(self) -> None:
        self.running = run(settings, partial(connect, self), app, service="GLiNERService", connections=limits)

    @bentoml.on_deployment
    @staticmethod
    def on_deployment() -> None:
        """Runs in the process of `bentoml serve`, before the processes of the services start."""
        supervise(settings)

    @bentoml.api(route="/v1/extract", input_spec=ExtractRequest)
    async def extract(self, **request: Any) -> ExtractResponse:
        """Entities and relations of one text."""
        return await app.answer(_service.context.request, answer_one, request)  # type: ignore[return-value]

    @bentoml.api(route="/v1/extract/batch", input_spec=ExtractBatchRequest)
    async def extract_batch(self, **request: Any) -> ExtractBatchResponse:
        """One result or error per text, in order."""
        return await app.answer(_service.context.request, answer_batch, request)  # type: ignore[return-value]

    @bentoml.on_shutdown
    async def shut_down(self) -> None:
        """The process ends normally, after all requests have been answered."""
        await self.running.aclose()


_service: bentoml.Service[Any] = GLiNERService  # the decorators return a service, not the class
_own_routes = (ReadableBody, {"paths": {api.route for api in _service.apis.values()}})
for middleware, arguments in (*app.middleware, (OwnReadiness, {"routes": app.routes}), _own_routes):
    _service.add_asgi_middleware(middleware, **arguments)
