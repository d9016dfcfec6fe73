"""The caller's side of the transport over Ray: one replica of a Ray Serve deployment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import Context
from typing import Any

from ray.exceptions import ObjectLostError, RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.remote import Connection, RemoteReplica

_LOST = (RayActorError, ObjectLostError, DeploymentUnavailableError, TaskCancelledError)


class RayReplica(RemoteReplica):
    """A `Replica` in an `ActorReplica`. handle: the handle of its deployment. name: its unique id in Ray."""

    def __init__(self, handle: DeploymentHandle, name: str) -> None:
        super().__init__(RayConnection(handle, name))

    async def metrics(self) -> bytes:
        """The metrics of the replica's process, in Prometheus' text format."""
        return bytes(await self._connection.control(bytes, "metrics", {}))


class RayConnection(Connection):
    """Calls one replica, which the deployment's router finds by its name."""

    def __init__(self, handle: DeploymentHandle, name: str) -> None:
        # Calls go over gRPC, without Ray's object store. Ray's default serializer also sends code; we send plain data.
        handle = handle.options(_by_reference=False, request_serialization="pickle")
        self._calls = handle.options(method_name="call")
        self._stream = handle.options(method_name="stream", stream=True)
        self._name = name

    def is_lost(self, error: Exception) -> bool:
        return isinstance(error.cause if isinstance(error, RayTaskError) else error, _LOST)

    async def call(self, method: str, message: bytes, archive: Archive | None = None) -> bytes:
        """See `Connection`. A whole archive is in this process's memory until the call is answered. If the caller is
        cancelled, so is the method in the replica."""
        content = None if archive is None else b"".join([piece async for piece in archive])
        response = self._start(self._calls, method, message, content)
        try:
            answer: bytes = await response
            return answer
        except asyncio.CancelledError:
            response.cancel()
            raise

    async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """See `Connection`. Ray reads ahead: it fetches pieces before the caller asks for them."""
        pieces = self._start(self._stream, message)
        try:
            async for piece in pieces:
                yield piece
        finally:
            pieces.cancel()

    def _start(self, method: DeploymentHandle, *arguments: Any) -> Any:
        """Start a call, in an empty context: Ray's router identifies a call by an id from the context, which all calls
        of one HTTP request would share."""
        return Context().run(method.remote, *arguments, replica=self._name)
