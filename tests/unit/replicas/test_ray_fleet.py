"""Ray Serve's request router sends a call to the replica that it names; the fleet follows the replicas that run."""

from __future__ import annotations

import asyncio
import uuid
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from replica_calls import run
from views import view

from gliner_bento.errors import NotReady
from gliner_bento.replicas.fleet.fleet import FleetOptions

pytest.importorskip("ray", reason="needs Ray: pip install -e '.[ray]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own
    from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID, RequestMetadata
    from ray.serve._private.request_router.common import PendingRequest

    from gliner_bento.replicas.ray import running
    from gliner_bento.replicas.ray.fleet import RayFleet
    from gliner_bento.replicas.ray.router import NamedReplicaRouter

DEPLOYMENT = DeploymentID("replica", "application")
OTHER = DeploymentID("other", "application")


class Running:
    """What the router uses of Ray's `RunningReplica`."""

    max_ongoing_requests = 10

    def __init__(self, name: str) -> None:
        self.replica_id = ReplicaID(name, DEPLOYMENT)

    async def get_queue_len(self, *, deadline_s: float) -> int:
        return 0


def call_of(name: str) -> PendingRequest:
    metadata = RequestMetadata(request_id="r", internal_request_id=uuid.uuid4().hex)
    return PendingRequest(args=[], kwargs={"replica": name}, metadata=metadata)


def test_a_call_goes_to_the_replica_that_it_names():
    async def scene() -> tuple[Any, Any]:
        router = NamedReplicaRouter(DEPLOYMENT, DeploymentHandleSource.REPLICA)
        router.update_replicas([Running(name) for name in "abc"])
        names = [*"abcabc", "gone", "b"]
        chosen = [router._choose_replica_for_request(call_of(name)) for name in names]
        return router, await asyncio.gather(*chosen, return_exceptions=True)

    router, chosen = run(scene)
    assert [getattr(one, "replica_id", one) for one in chosen[:6]] == [ReplicaID(name, DEPLOYMENT) for name in "abcabc"]
    assert (type(chosen[6]), chosen[7].replica_id.unique_id) == (NotReady, "b")
    assert not router._pending_requests_by_id, "nothing is left behind"


def test_the_fleet_has_the_replicas_that_run():
    async def scene() -> None:
        unanswered = asyncio.get_running_loop().create_future
        handle = SimpleNamespace(
            deployment_id=DEPLOYMENT, options=lambda **_: handle, remote=lambda *_, **__: unanswered()
        )
        router = NamedReplicaRouter(DEPLOYMENT, DeploymentHandleSource.REPLICA)
        router.update_replicas([Running("a")])
        running.report(OTHER, ["z"])
        fleet = RayFleet(handle, view(FleetOptions), lambda items: None)
        await asyncio.sleep(0)
        first = dict(fleet.replicas)
        router.update_replicas([Running("a"), Running("b")])
        await asyncio.sleep(0)
        both = dict(fleet.replicas)
        await asyncio.to_thread(running.report, DEPLOYMENT, ["b"])
        await asyncio.sleep(0)
        assert (list(first), list(both), list(fleet.replicas)) == (["a"], ["a", "b"], ["b"])
        assert fleet.replicas["b"] is both["b"]
        assert both["a"] is first["a"]
        await fleet.close()

    run(scene)
