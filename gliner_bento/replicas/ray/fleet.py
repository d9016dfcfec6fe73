"""A fleet of all replicas that Ray runs for a Ray Serve deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ray.serve.handle import DeploymentHandle

from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.ray import running
from gliner_bento.replicas.ray.client import RayReplica


class RayFleet(Fleet):
    """The replicas of the deployment of `handle`, also those that Ray starts later. For the running event loop."""

    def __init__(self, handle: DeploymentHandle, options: FleetOptions, on_repeat: Callable[[int], None]) -> None:
        super().__init__({}, options, on_repeat=on_repeat)
        self._handle = handle
        loop = asyncio.get_running_loop()
        running.follow(handle.deployment_id, lambda names: loop.call_soon_threadsafe(self._update, names))
        handle.options()  # makes this process's router, which reports the replicas

    async def metrics(self) -> Mapping[str, bytes]:
        """The metrics of all replicas that answer, by name, in Prometheus' text format."""
        replicas = {name: replica for name, replica in self.replicas.items() if isinstance(replica, RayReplica)}
        answers = await asyncio.gather(*(replica.metrics() for replica in replicas.values()), return_exceptions=True)
        return {name: answer for name, answer in zip(replicas, answers, strict=True) if isinstance(answer, bytes)}

    def _update(self, names: Sequence[str]) -> None:
        """Add and remove replicas, so that the fleet consists of `names`."""
        known = self.replicas.keys()
        for name in known - set(names):
            self.remove(name)
        for name in names:
            if name not in known:
                self.add(name, RayReplica(self._handle, name))
