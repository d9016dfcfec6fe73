"""GLiNERRunner: the BentoML service that hosts the models. `instances.py` makes one or several instances of it."""

from __future__ import annotations

from typing import Any

import bentoml

from gliner_bento.process.bentoml_options import bentoml_options
from gliner_bento.process.instances import RUNNER, Instance
from gliner_bento.process.run import load_models, run
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.settings import Settings

REPLICA_PATH = "/replica"


class GLiNERRunner:
    """A process that holds the models, each with its scheduler, engine and adapters."""

    settings: Settings
    instance: Instance
    app: ReplicaApp

    def __init__(self) -> None:
        name, after = self.instance.name, self.instance.after
        self.running = run(self.settings, load_models, service=name, after=after, needed_by="GLiNERService")
        source: Any = self.running.source
        self.replicas, self.models = source.replicas, source.models
        self.app.bind(next(iter(self.replicas.values())), self.models)

    async def __is_ready__(self) -> bool:
        return all(row.state in ("ready", "evicted", "failed", "unloaded") for row in await self.models.rows())

    @bentoml.on_shutdown
    async def shut_down(self) -> None:
        """The gateway has ended, so nobody waits for unfinished items."""
        await self.running.aclose()


def service_of(instance: Instance, settings: Settings) -> bentoml.Service[Any]:
    """The BentoML service of an instance: its own process, socket and name."""
    app = ReplicaApp()
    runner = type(instance.name, (GLiNERRunner,), {"settings": settings, "instance": instance, "app": app})
    environment: Any = [{"name": name, "value": value} for name, value in instance.environment.items()]
    service = bentoml.service(name=instance.name, envs=environment, **bentoml_options(settings, RUNNER))(runner)
    service.mount_asgi_app(app, path=REPLICA_PATH)
    return service
