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
        return await self._connection.control(bytes, "metrics", {})


class RayConnection(Connection):
    """Calls one replica, which the deployment's router finds by its name."""

    def __init__(self, handle: DeploymentHandle, name: str) -> None:
        # Calls go over gRPC, without Ray's object store. Ray's default serializer also sends code; we send plain data.
        handle = handle.options(_by_reference=False, request_serialization="pickle")
        self._call = handle.options(method_name="call")
        self._stream = handle.options(method_name="stream", stream=True)
        self._install = handle.options(method_name="install")
        self._name = name

    def is_lost(self, error: Exception) -> bool:
        """See `Connection`."""
        return isinstance(error.cause if isinstance(error, RayTaskError) else error, _LOST)

    async def call(self, method: str, message: bytes) -> bytes:
        """See `Connection`."""
        return await self._answer(self._call, method, message)

    async def stream(self, message: bytes) -> AsyncGenerator[bytes, None]:
        """See `Connection`. Ray reads ahead: it fetches pieces before the caller asks for them."""
        pieces = self._start(self._stream, message)
        try:
            async for piece in pieces:
                yield piece
        finally:
            pieces.cancel()

    async def install(self, message: bytes, archive: Archive | None) -> bytes:
        """See `Connection`. The whole archive is in this process's memory until it is installed."""
        content = None if archive is None else b"".join([piece async for piece in archive])
        return await self._answer(self._install, message, content)

    async def _answer(self, method: DeploymentHandle, *arguments: Any) -> bytes:
        """The response. If the caller is cancelled, so is the method in the replica."""
        response = self._start(method, *arguments)
        try:
            answer: bytes = await response
            return answer
        except asyncio.CancelledError:
            response.cancel()
            raise

    def _start(self, method: DeploymentHandle, *arguments: Any) -> Any:
        """Start a call, in an empty context: Ray's router identifies a call by an id from the context, which all calls
        of one HTTP request would share."""
        return Context().run(method.remote, *arguments, replica=self._name)
