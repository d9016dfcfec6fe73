"""The gateway's process closes its connections to the runner when it stops."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from serving import LocalServing, run, served, until
from starlette.applications import Starlette
from starlette.routing import Mount

import service
from gliner_bento.process.supervision import ServiceProcess
from gliner_bento.replicas.fleet.fleet import Fleet
from gliner_bento.replicas.http.server import ReplicaApp
from runners import instances
from runners.gliner_runner import REPLICA_PATH


@pytest.mark.parametrize("names", [["GLiNERRunner"], ["GLiNERRunner1", "GLiNERRunner2"]])
def test_the_service_closes_its_connections_when_it_stops(names, tmp_path, monkeypatch):
    monkeypatch.setattr(instances, "RUNNERS", [SimpleNamespace(name=name) for name in names])
    runner, app = LocalServing(tmp_path / "uploads"), ReplicaApp()
    app.bind(runner.local)
    server = served(Starlette(routes=[Mount(REPLICA_PATH, app)]), tmp_path / "socket")
    connections = server._server.server_state.connections

    async def scene() -> None:
        process = ServiceProcess("GLiNERService", service.settings)
        proxy = SimpleNamespace(to_async=SimpleNamespace(url=server.url))
        replica = instances.replica_for(SimpleNamespace(**dict.fromkeys(names, proxy)), process)
        assert isinstance(replica, Fleet)
        assert (await replica.status()).ready
        assert connections
        gateway = SimpleNamespace(replica=replica, process=process)
        await service.GLiNERService.inner.shut_down(gateway)
        await until(lambda: not connections)

    run(scene)
    runner.end()
    server.stop()
