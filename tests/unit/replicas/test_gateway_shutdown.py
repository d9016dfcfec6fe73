"""The gateway's process closes its connections to the runner when it stops."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
from replica_calls import run, until
from serving import LocalServing, served
from starlette.applications import Starlette
from starlette.routing import Mount

import service
from gliner_bento.errors import NotReady
from gliner_bento.process.instances import Instance
from gliner_bento.process.run import run as start
from gliner_bento.replicas.fleet.fleet import Fleet
from gliner_bento.replicas.http.server import ReplicaApp
from runners import instances
from runners.gliner_runner import REPLICA_PATH


@pytest.mark.parametrize("names", [["GLiNERRunner"], ["GLiNERRunner1", "GLiNERRunner2"]])
def test_the_service_closes_its_connections_when_it_stops(names, tmp_path, monkeypatch):
    monkeypatch.setattr(instances, "PLAN", [Instance(name) for name in names])
    runner, app = LocalServing(tmp_path / "uploads"), ReplicaApp()
    app.bind(runner.local)
    server = served(Starlette(routes=[Mount(REPLICA_PATH, app)]), tmp_path / "socket")
    connections = server._server.server_state.connections

    async def scene() -> None:
        proxy = SimpleNamespace(to_async=SimpleNamespace(url=server.url))
        runners = SimpleNamespace(**dict.fromkeys(names, proxy))
        connected = start(instances.settings, partial(instances.connect, runners), service.app, raises=True)
        (fleet,) = connected.source.replicas.values()
        assert isinstance(fleet, Fleet)
        await until(partial(_is_ready, fleet))
        assert connections
        await service.GLiNERService.inner.shut_down(SimpleNamespace(running=connected))
        await until(lambda: not connections)

    run(scene)
    runner.end()
    server.stop()


async def _is_ready(fleet: Fleet) -> bool:
    with suppress(NotReady):  # no probe has been answered in time yet
        return (await fleet.status()).ready
    return False
