"""The instances of the runner, and how the gateway reaches them: as a fleet, even if there is only one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import bentoml

from gliner_bento.process.bentoml_options import several_gateways
from gliner_bento.process.exits import load_or_exit
from gliner_bento.process.instances import by_model, plan_or_exit
from gliner_bento.process.run import ProcessParts, ReplicaSource
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.fleet.models import FleetModels
from gliner_bento.replicas.http.client import HttpConnection, HttpReplica
from gliner_bento.replicas.remote import RemoteModels
from runners.gliner_runner import REPLICA_PATH, service_of

settings = load_or_exit()
PLAN = plan_or_exit(settings)
RUNNERS = [service_of(instance, settings) for instance in PLAN]


class GatewayService(bentoml.Service[Any]):  # type: ignore[misc]
    """A service whose bento may be served with a number of instances different from the one it was built with."""

    __slots__ = ()

    def on_load_bento(self, bento: Any) -> None:
        """Replaces BentoML's method, which fails for a service that is not in the bento's list."""
        for service in self.all_services().values():
            service.bento = bento


def depend_on_runners(gateway: type) -> type:
    """Make every runner a dependency of the service class `gateway`."""
    for runner in RUNNERS:
        setattr(gateway, runner.name, bentoml.depends(runner))
    return gateway


def connect(gateway: Any, parts: ProcessParts) -> ReplicaSource:
    """A fleet of each model's replicas in the runners, for the running event loop; if the runner is in this process,
    the runner's own replicas. The server ends if runners serve different checkpoints under one name."""
    runners = {instance.name: getattr(gateway, instance.name) for instance in PLAN}
    for runner in runners.values():
        if hasattr(runner, "models"):  # the runner itself; otherwise BentoML's proxy of a runner in another process
            return ReplicaSource(runner.replicas, models=runner.models)

    urls = {name: runner.to_async.url for name, runner in runners.items()}
    make_fleet = partial(_make_fleet, urls, parts)

    def expect_no_restart() -> None:
        for fleet in fleets.values():
            fleet.expect_no_restart()

    async def close() -> None:
        for fleet in [*fleets.values()]:
            await _close_fleet(fleet)
        for connection in connections.values():
            await connection.close()

    fleets: dict[str | None, Any] = {name: make_fleet(name) for name in by_model(settings)}
    connections = {name: HttpConnection(url, REPLICA_PATH) for name, url in urls.items()}
    members = {name: RemoteModels(connection, make_fleet) for name, connection in connections.items()}
    models = FleetModels(members, fleets, make_fleet, _close_fleet)
    return ReplicaSource({**fleets}, on_signal=expect_no_restart, close=close, models=models)


def _make_fleet(urls: Mapping[str, str], parts: ProcessParts, name: str | None) -> Fleet:
    """The fleet of a model, over the runners at `urls`."""
    path = f"{REPLICA_PATH}/models/{name}" if name else REPLICA_PATH
    replicas = {runner: HttpReplica(url, path) for runner, url in urls.items()}
    options = replace(parts.settings.view(FleetOptions), several_gateways=several_gateways(parts.settings))
    if len(replicas) == 1:
        options = replace(options, max_outstanding_tokens=sys.maxsize)  # the replica's own queue is fair
    fleet = Fleet(replicas, options, on_other_model=parts.process.end_server, on_repeat=parts.metrics.on_repeat)
    fleet.start()
    return fleet


async def _close_fleet(fleet: Any) -> None:
    await fleet.close()
    for replica in fleet.replicas.values():
        await replica.close()
