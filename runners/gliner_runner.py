"""GLiNERRunner: the BentoML service that hosts one replica. `instances.py` makes one, or several of it."""

from __future__ import annotations

from typing import Any

import bentoml

from gliner_bento.cores import usable_cores
from gliner_bento.exits import StartupError, exit_with
from gliner_bento.instances import RUNNER, Instance
from gliner_bento.process.bentoml_options import bentoml_options
from gliner_bento.process.supervision import ServiceProcess
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.local import LocalReplica
from gliner_bento.settings import load_or_exit
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.telemetry import log
from gliner_bento.telemetry.tracing import start_tracing

REPLICA_PATH = "/replica"

settings = load_or_exit()


def check_cores() -> None:
    """End this process with one line if there are more instances than cores: before each of them starts a process."""
    if settings.num_instances <= usable_cores():
        return
    from gliner_bento.engine.checkpoint.device import pick_device  # noqa: PLC0415  # imports torch

    try:
        settings.decided_for(str(pick_device(settings.device)))
    except (SettingsError, StartupError) as error:
        exit_with(str(error))


class GLiNERRunner:
    """One model replica: scheduler, engine, adapters."""

    instance: Instance
    app: ReplicaApp

    def __init__(self) -> None:
        log.configure(settings)
        self.process = ServiceProcess(self.instance.name, settings)
        from gliner_bento.telemetry.metrics import PrometheusObserver  # noqa: PLC0415  # its files are in the process's folder

        with self.process.starting(after=self.instance.after):
            self.replica = LocalReplica.load(
                settings, PrometheusObserver(), self.process.end_hung, start_tracing(settings)
            )
            self.app.bind(self.replica)
        self.process.serve(needed_by="GLiNERService", fail=self.replica.close)

    def __is_ready__(self) -> bool:
        return self.replica.ready

    @bentoml.on_shutdown
    def shut_down(self) -> None:
        """Fail unfinished items; no caller waits for them at this point."""
        self.process.stopped()
        self.replica.close()


def service_of(instance: Instance) -> bentoml.Service[Any]:
    """The BentoML service of an instance: its own process, socket and name."""
    app = ReplicaApp()
    runner = type(instance.name, (GLiNERRunner,), {"instance": instance, "app": app})
    environment: Any = [{"name": name, "value": value} for name, value in instance.environment.items()]
    service = bentoml.service(name=instance.name, envs=environment, **bentoml_options(settings, RUNNER))(runner)
    service.mount_asgi_app(app, path=REPLICA_PATH)
    return service
