"""GLiNERRunner: the BentoML service that hosts one replica. The gateway reaches it through `BentoReplica`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

import bentoml
from bentoml.validators import ContentType

from gliner_bento.disconnect import CancelOnDisconnect
from gliner_bento.log import join_bentoml
from gliner_bento.replicas.bento.server import ReplicaServer
from gliner_bento.replicas.local import LocalReplica
from gliner_bento.settings import load_or_exit
from gliner_bento.supervision import ServiceProcess

settings = load_or_exit()

# Without this content type, BentoML derives one from the type's JSON schema for each response.
Message = Annotated[bytes, ContentType("application/msgpack")]


@bentoml.service(name="GLiNERRunner", **settings.bentoml_options("GLiNERRunner"))
class GLiNERRunner:
    """One model replica: scheduler, engine, adapters."""

    def __init__(self) -> None:
        from gliner_bento.metrics import PrometheusObserver  # noqa: PLC0415  # binds to its files at import

        join_bentoml()
        self.process = ServiceProcess("GLiNERRunner", settings)
        with self.process.starting():
            self.replica = LocalReplica.load(settings, PrometheusObserver())
        self.server = ReplicaServer(self.replica, self.replica.adapters.uploads)

    @bentoml.api
    async def extract(self, message: bytes) -> Message:
        """See `ReplicaServer`."""
        return await self.server.extract(message)

    @bentoml.api
    async def stream(self, message: bytes) -> AsyncGenerator[Message, None]:
        """See `ReplicaServer`."""
        async for frame in self.server.stream(message):
            yield frame

    @bentoml.api
    async def control(self, method: str, arguments: bytes) -> Message:
        """See `ReplicaServer`."""
        return await self.server.control(method, arguments)

    def __is_ready__(self) -> bool:
        return self.replica.ready

    @bentoml.on_shutdown
    def shut_down(self) -> None:
        """Fail unfinished items; no caller waits for them at this point."""
        self.process.stopped()
        self.replica.close()


GLiNERRunner.add_asgi_middleware(CancelOnDisconnect)  # type: ignore[attr-defined]  # now a bentoml.Service
