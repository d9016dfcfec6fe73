"""The caller's side of the transport over Ray: one replica of a Ray Serve deployment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ray.exceptions import ObjectLostError, RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.remote import Connection, RemoteReplica

_LOST = (RayActorError, ObjectLostError, DeploymentUnavailableError, TaskCancelledError)


class RayReplica(RemoteReplica):
    """A `Replica` in a `HostedReplica`. handle: of its deployment."""

    def __init__(self, handle: DeploymentHandle, name: str) -> None:
        self._ray = RayConnection(handle, name)
        super().__init__(self._ray)

    async def metrics(self) -> bytes:
        """The metrics of its process, in Prometheus' text format."""
        return await self._ray.control(bytes, "metrics", {})


class RayConnection(Connection):
    """Calls of one replica, which the deployment's router finds by its name."""

    def __init__(self, handle: DeploymentHandle, name: str) -> None:
        # Over gRPC, without Ray's object store. Ray's default serializer is for code; all that is sent is plain.
        self._handle = handle.options(_by_reference=False, request_serialization="pickle")
        self._streams = self._handle.options(stream=True)
        self._name = name

    def is_lost(self, error: Exception) -> bool:
        """See `Connection`."""
        return isinstance(error.cause if isinstance(error, RayTaskError) else error, _LOST)

    async def call(self, method: str, message: bytes) -> bytes:
        """See `Connection`."""
        return await _answer(self._handle.call.remote(method, message, replica=self._name))

    async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """See `Connection`. Ray reads ahead of its caller."""
        pieces = self._streams.stream.remote(message, replica=self._name)
        try:
            async for piece in pieces:
                yield piece
        finally:
            pieces.cancel()

    async def install(self, message: bytes, archive: Archive | None) -> bytes:
        """See `Connection`. The archive is in this process's memory until it is installed."""
        content = None if archive is None else b"".join([piece async for piece in archive])
        return await _answer(self._handle.install.remote(message, content, replica=self._name))


async def _answer(response: DeploymentResponse[bytes]) -> bytes:
    """The response, which is cancelled where it runs if its caller is cancelled."""
    try:
        answer: bytes = await response
        return answer
    except asyncio.CancelledError:
        response.cancel()
        raise
