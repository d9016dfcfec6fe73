"""A replica in an actor of Ray Serve, called by `RayReplica`s. A model's deployment consists of such actors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import cast

import ray
from ray import serve

from gliner_bento.host.models import LocalModels
from gliner_bento.process.run import load_models, run
from gliner_bento.replicas.ray.scaling import BUSY_LANES, WAITING_TOKENS
from gliner_bento.replicas.remote import ReplicaServer
from gliner_bento.settings import Settings
from gliner_bento.telemetry.metrics import own_exposition


class ReplicaHost:
    """Answers the calls of `RayReplica`s with `server`. replica: the called replica's name, for the router only."""

    def __init__(self, server: ReplicaServer) -> None:
        self._server = server

    async def call(self, method: str, message: bytes, archive: bytes | None = None, *, replica: str) -> bytes:
        """See `ReplicaServer`."""
        return await self._server.call(method, message, None if archive is None else _pieces(archive))

    async def stream(self, message: bytes, *, replica: str) -> AsyncGenerator[bytes, None]:
        """See `ReplicaServer`."""
        async with aclosing(self._server.stream(message)) as frames:
            async for frame in frames:
                yield frame


class ActorReplica(ReplicaHost):
    """A `LocalReplica` with the cores and GPUs that Ray has assigned to its actor."""

    def __init__(self, settings: Settings) -> None:
        self._name: str = serve.get_replica_context().replica_id.unique_id
        assigned = ray.get_runtime_context().get_assigned_resources()
        gpu_share = min(1.0, assigned.get("GPU", 1.0))
        changes = {"num_instances": 1, "target_memory_fraction": settings.target_memory_fraction * gpu_share}
        load = partial(load_models, cores=max(1, int(assigned.get("CPU", 1))))
        running = run(settings.model_copy(update=changes), load, service=f"replica {self._name}", raises=True)
        self._replica = cast(LocalModels, running.source.models).loaded()[0]
        super().__init__(ReplicaServer(self._replica, more={"metrics": _metrics}))

    def record_autoscaling_stats(self) -> dict[str, float]:
        """The metrics that `WaitingTokensPolicy` reads. Called by Ray."""
        stats = self._replica.scheduler.stats
        busy = (stats.lanes_alive - stats.lanes_free) / max(1, stats.lanes)
        return {WAITING_TOKENS: stats.waiting_tokens, BUSY_LANES: busy}

    def check_health(self) -> None:
        """Raises if a thread has died; Ray then replaces the actor. Called by Ray."""
        if not self._replica.ready:
            raise RuntimeError("the replica admits no requests: one of its threads has died")

    def __del__(self) -> None:
        """Called by Ray when all requests have been answered."""
        if replica := getattr(self, "_replica", None):
            replica.close()


async def _pieces(archive: bytes) -> AsyncIterator[bytes]:
    yield archive


async def _metrics() -> bytes:
    """This process's metrics in Prometheus' text format."""
    return own_exposition()
