"""The instances of the runner, and how the gateway reaches them: as a fleet, also a single one."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, cast

import bentoml

from gliner_bento.instances import plan_or_exit
from gliner_bento.process.supervision import ServiceProcess
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.http.client import HttpReplica
from runners.gliner_runner import REPLICA_PATH, check_cores, service_of, settings

check_cores()
RUNNERS = [service_of(instance) for instance in plan_or_exit(settings)]


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


def replica_for(gateway: Any, process: ServiceProcess) -> Replica:
    """The fleet of all runners; a runner in this process is a replica by itself. For the running event loop.

    process: the gateway's; it ends the server if the runners serve different models.
    """
    runners = {runner.name: getattr(gateway, runner.name) for runner in RUNNERS}
    local = [runner.replica for runner in runners.values() if hasattr(runner, "replica")]
    if len(local) == len(runners) == 1:
        return cast(Replica, local[0])
    from gliner_bento.telemetry import metrics  # noqa: PLC0415  # its files are in the process's folder

    replicas = {name: _replica_of(runner) for name, runner in runners.items()}
    options = settings.view(FleetOptions)
    if len(runners) == 1:
        options = replace(options, max_outstanding_tokens=sys.maxsize)  # its own queue shares it among tenants
    fleet = Fleet(replicas, options, on_other_model=process.end_server, on_repeat=metrics.REPEATED_ITEMS.inc)
    fleet.start()
    return fleet


def _replica_of(runner: Any) -> Replica:
    """The replica of what `bentoml.depends` gives: a client of the runner's process, or the runner in this process."""
    local: Replica | None = getattr(runner, "replica", None)
    return local or HttpReplica(runner.to_async.url, REPLICA_PATH)


def expect_no_restart(replica: Replica) -> None:
    """The server ends: no runner that is lost is started again."""
    if isinstance(replica, Fleet):
        replica.expect_no_restart()


async def disconnect(replica: Replica) -> None:
    """Close the connections of what `replica_for` gave. A replica in this process is closed by its runner."""
    if isinstance(replica, Fleet):
        await replica.close()
        for one in replica.replicas.values():
            await disconnect(one)
    elif isinstance(replica, HttpReplica):
        await replica.close()
