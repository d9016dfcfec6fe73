"""GLiNERRunner: the BentoML service that hosts one replica. The gateway reaches it through `HttpReplica`."""

from __future__ import annotations

from typing import Any

import bentoml

from gliner_bento import log
from gliner_bento.bentoml_options import bentoml_options
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.local import LocalReplica
from gliner_bento.settings import load_or_exit
from gliner_bento.supervision import ServiceProcess

REPLICA_PATH = "/replica"

settings = load_or_exit()
app = ReplicaApp()


@bentoml.service(name="GLiNERRunner", **bentoml_options(settings, "GLiNERRunner"))
@bentoml.asgi_app(app, path=REPLICA_PATH)
class GLiNERRunner:
    """One model replica: scheduler, engine, adapters."""

    def __init__(self) -> None:
        log.configure(settings)
        self.process = ServiceProcess("GLiNERRunner", settings)
        from gliner_bento.metrics import PrometheusObserver  # noqa: PLC0415  # its files are in the process's folder

        with self.process.starting():
            self.replica = LocalReplica.load(settings, PrometheusObserver(), self.process.end_hung)
            app.bind(self.replica)
        self.process.serve(needed_by="GLiNERService", fail=self.replica.close)

    def __is_ready__(self) -> bool:
        return self.replica.ready

    @bentoml.on_shutdown
    def shut_down(self) -> None:
        """Fail unfinished items; no caller waits for them at this point."""
        self.process.stopped()
        self.replica.close()


def replica_of(runner: Any) -> Replica:
    """The replica of what `bentoml.depends` gives: a client of the runner's process, or the runner in this process."""
    local: Replica | None = getattr(runner, "replica", None)
    return local or HttpReplica(runner.to_async.url, REPLICA_PATH)


async def disconnect(replica: Replica) -> None:
    """Close the connections of what `replica_of` gave. A replica in this process is closed by its runner."""
    if isinstance(replica, HttpReplica):
        await replica.close()
