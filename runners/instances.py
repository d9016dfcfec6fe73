"""The instances of the runner, and how the gateway reaches them: as a fleet, also a single one."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import bentoml

from gliner_bento.process.exits import load_or_exit
from gliner_bento.process.instances import plan_or_exit
from gliner_bento.process.run import Parts, Source
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.http.client import HttpReplica
from runners.gliner_runner import REPLICA_PATH, service_of

settings = load_or_exit()
RUNNERS = [service_of(instance, settings) for instance in plan_or_exit(settings)]


class GatewayService(bentoml.Service[Any]):  # type: ignore[misc]
    """A service whose bento may be served with any number of instances: the bento lists those of its build."""

    __slots__ = ()

    def on_load_bento(self, bento: Any) -> None:
        """BentoML looks up each service's models in the bento's list, and fails for one that is not there."""
        for service in self.all_services().values():
            service.bento = bento


def depend_on_runners(gateway: type) -> type:
    """Make every runner a dependency of the service class `gateway`."""
    for runner in RUNNERS:
        setattr(gateway, runner.name, bentoml.depends(runner))
    return gateway


def connect(gateway: Any, parts: Parts) -> Source:
    """The fleet of all runners; a runner in this process is a replica by itself. For the running event loop.

    Runners that serve different models end the server.
    """
    replicas = {runner.name: _replica_of(getattr(gateway, runner.name)) for runner in RUNNERS}
    clients = [replica for replica in replicas.values() if isinstance(replica, HttpReplica)]
    if len(replicas) == 1 and not clients:
        return Source(next(iter(replicas.values())))
    options = parts.settings.view(FleetOptions)
    if len(replicas) == 1:
        options = replace(options, max_outstanding_tokens=sys.maxsize)  # its own queue shares it among tenants
    fleet = Fleet(replicas, options, on_other_model=parts.process.end_server, on_repeat=parts.metrics.on_repeat)
    fleet.start()

    async def close() -> None:
        await fleet.close()
        for client in clients:
            await client.close()

    return Source(fleet, on_signal=fleet.expect_no_restart, close=close)


def _replica_of(runner: Any) -> Replica:
    """The replica of what `bentoml.depends` gives: a client of the runner's process, or the runner in this process."""
    local: Replica | None = getattr(runner, "replica", None)
    return local or HttpReplica(runner.to_async.url, REPLICA_PATH)
