"""A replica behind Ray Serve's handle, in this process. Its router and the network are tested in tests/service."""

from __future__ import annotations

from ray import serve

from gliner_bento.ray.host import ReplicaHost
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.ray.client import RayReplica
from gliner_bento.replicas.remote import ReplicaServer

_replicas: dict[str, Replica] = {}


class Host(ReplicaHost):
    """Ray pickles its arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(ReplicaServer(_replicas.pop(name)))


def behind_ray(replica: Replica, name: str) -> RayReplica:
    _replicas[name] = replica
    handle = serve.run(serve.deployment(Host).bind(name), _local_testing_mode=True)
    return RayReplica(handle, name)
