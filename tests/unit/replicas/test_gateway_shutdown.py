"""The gateway's process closes its connections to the runner when it stops."""

from __future__ import annotations

from types import SimpleNamespace

from serving import LocalServing, run, served, until
from starlette.applications import Starlette
from starlette.routing import Mount

import service
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.supervision import ServiceProcess
from runners.gliner_runner import REPLICA_PATH, replica_of


def test_the_service_closes_its_connections_when_it_stops(tmp_path):
    runner, app = LocalServing(tmp_path / "uploads"), ReplicaApp()
    app.bind(runner.local)
    server = served(Starlette(routes=[Mount(REPLICA_PATH, app)]), tmp_path / "socket")
    connections = server._server.server_state.connections

    async def scene() -> None:
        replica = replica_of(SimpleNamespace(to_async=SimpleNamespace(url=server.url)))
        assert (await replica.status()).ready
        assert connections
        gateway = SimpleNamespace(replica=replica, process=ServiceProcess("GLiNERService", service.settings))
        await service.GLiNERService.inner.shut_down(gateway)
        await until(lambda: not connections)

    run(scene)
    runner.end()
    server.stop()
