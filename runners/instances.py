"""The instances of the runner, and how the gateway reaches them: as a fleet, also a single one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import bentoml

from gliner_bento.process.exits import load_or_exit
from gliner_bento.process.instances import by_model, plan_or_exit
from gliner_bento.process.run import Parts, Source
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.http.client import HttpReplica
from runners.gliner_runner import REPLICA_PATH, service_of

settings = load_or_exit()
PLAN = plan_or_exit(settings)
RUNNERS = [service_of(instance, by_model(settings)[instance.model]) for instance in PLAN]


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
    """The fleet of each model's runners; a runner in this process is a replica by itself. For the running event loop.

    Runners of a model that serve different ones end the server.
    """
    members = {one: _replica_of(getattr(gateway, one.name)) for one in PLAN}
    replicas = {
        model: _together({one.name: members[one] for one in instances}, parts)
        for model, instances in groupby(PLAN, attrgetter("model"))
    }
    fleets = [one for one in replicas.values() if isinstance(one, Fleet)]
    for fleet in fleets:
        fleet.start()

    def expect_no_restart() -> None:
        for fleet in fleets:
            fleet.expect_no_restart()

    async def close() -> None:
        for fleet in fleets:
            await fleet.close()
        for client in members.values():
            if isinstance(client, HttpReplica):
                await client.close()

    return Source(replicas, on_signal=expect_no_restart, close=close)


def _together(replicas: Mapping[str, Replica], parts: Parts) -> Replica:
    """Those of one model, by the names of their runners."""
    if len(replicas) > 1:
        options = parts.settings.view(FleetOptions)
    elif isinstance(replica := next(iter(replicas.values())), HttpReplica):
        options = replace(parts.settings.view(FleetOptions), max_outstanding_tokens=sys.maxsize)  # its own queue shares
    else:
        return replica
    return Fleet(replicas, options, on_other_model=parts.process.end_server, on_repeat=parts.metrics.on_repeat)


def _replica_of(runner: Any) -> Replica:
    """The replica of what `bentoml.depends` gives: a client of the runner's process, or the runner in this process."""
    local: Replica | None = getattr(runner, "replica", None)
    return local or HttpReplica(runner.to_async.url, REPLICA_PATH)
