"""The bento: GLiNERService in front of GLiNERRunner. Start reading here; docs/architecture.md has the map."""

from __future__ import annotations

from typing import Any

import bentoml

from gliner_bento.disconnect import CancelOnDisconnect
from gliner_bento.gateway.app import GatewayApp, respond
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.limits import Limits
from gliner_bento.gateway.middleware import GatewayMiddleware
from gliner_bento.gateway.runner import Hop
from gliner_bento.log import join_bentoml
from gliner_bento.settings import load_or_exit
from gliner_bento.types import ExtractBatchRequest, ExtractBatchResponse, ExtractRequest, ExtractResponse
from runners.gliner_runner import GLiNERRunner

settings = load_or_exit()
app = GatewayApp(settings.route_prefix)


@bentoml.service(name="GLiNERService", **settings.bentoml_options("GLiNERService"))
@bentoml.asgi_app(app.asgi, path="/")
class GLiNERService:
    """Zero-shot named entities and relations over HTTP."""

    runner = bentoml.depends(GLiNERRunner)

    def __init__(self) -> None:
        self.gateway = Gateway(Hop(self.runner), settings.view(Limits))
        app.bind(self.gateway)
        join_bentoml()

    @bentoml.api(route="/v1/extract", input_spec=ExtractRequest, output_spec=ExtractResponse)
    async def extract(self, **request: Any) -> Any:
        """Entities and relations of one text."""
        return await respond(self.gateway.extract(ExtractRequest.model_construct(**request)))

    @bentoml.api(route="/v1/extract/batch", input_spec=ExtractBatchRequest, output_spec=ExtractBatchResponse)
    async def extract_batch(self, **request: Any) -> Any:
        """One result or error per text, in order."""
        return await respond(self.gateway.extract_batch(ExtractBatchRequest.model_construct(**request)))

    async def __is_ready__(self) -> bool:
        return await self.gateway.ready()


_service: bentoml.Service[Any] = GLiNERService  # what the decorators made of the class
_service.add_asgi_middleware(CancelOnDisconnect)
_service.add_asgi_middleware(
    GatewayMiddleware, max_body_bytes=settings.max_body_bytes, max_adapter_bytes=settings.max_adapter_bytes
)
