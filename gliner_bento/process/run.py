"""Starts a process of a server: the steps that all entry points have in common, in their order.

An entry point (`service.py`, `runners/`, `asgi.py`, `ray/`) chooses the settings and the replica, and calls `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gliner_bento.process.instances import by_model
from gliner_bento.process.interpreter import prefer_throughput
from gliner_bento.process.port import allow_next_server
from gliner_bento.process.supervision import ServiceProcess
from gliner_bento.replicas.base import ROWS_AGE_S, Models, Replica
from gliner_bento.settings import Settings
from gliner_bento.telemetry import log
from gliner_bento.telemetry.metrics import Metrics, process_metrics
from gliner_bento.telemetry.tracing import start_tracing

if TYPE_CHECKING:
    from gliner_bento.telemetry.otel import Tracing


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """What the `connect` of `run` needs to make replicas. tracing: None if it is off."""

    settings: Settings
    process: ServiceProcess
    metrics: Metrics
    tracing: Tracing | None


async def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaSource:
    """What `connect` returns: a replica, or several by the names of their models, and callbacks for the process's end.

    on_signal: called in the signal handler when the process is asked to end. fail: fails the requests that still run
    when the time for them is over; called from another thread. close: called after the last request. read_metrics:
    returns the metrics of processes on other machines; the keys are replicas. models: loads and unloads models; None if
    models cannot be changed.
    """

    replicas: Replica | Mapping[str | None, Replica]
    on_signal: Callable[[], object] = lambda: None
    fail: Callable[[], object] = lambda: None
    close: Callable[[], Awaitable[object]] = _nothing
    read_metrics: Callable[[], Awaitable[Mapping[str, bytes]]] | None = None
    models: Models | None = None


class Connections(Protocol):
    """The connections of the HTTP server: see `ProtocolLimits`."""

    def end(self) -> None: ...

    def fail(self) -> None: ...


class App(Protocol):
    """The gateway: see `GatewayApp`."""

    @property
    def pages(self) -> Mapping[str, str]: ...

    @property
    def gateway(self) -> Any: ...

    def bind(self, replicas: Any, tracer: Any = None, read_metrics: Any = None, models: Any = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Running:
    """A process that serves `source`, with the gateway of `app` if it has one."""

    process: ServiceProcess
    source: ReplicaSource
    app: App | None = None

    async def aclose(self) -> None:
        """To be called when the process ends normally, after all requests have been answered."""
        self.process.stopped()
        if self.app:
            await self.app.gateway.aclose()
        await self.source.close()


def run(
    settings: Settings,
    connect: Callable[[ProcessParts], ReplicaSource],
    app: App | None = None,
    *,
    service: str = "gliner-bento",
    after: str | None = None,
    needed_by: str | None = None,
    connections: Connections | None = None,
    raises: bool = False,
) -> Running:
    """Start to serve in this process. Blocks until `connect` has made the replicas.

    app: the gateway that serves the replicas. service: the process's name in messages and for the supervisor. after: a
    service that must be ready before this one starts. needed_by: a service that sends requests to this one, and ends
    before it. connections: end at the signal, and fail with the requests that still run. raises: raise errors of the
    start; otherwise they end the process, or the server, with one line.
    """
    log.configure(settings)
    process = ServiceProcess(service, settings)
    with nullcontext() if raises else process.starting(after=after):
        parts = ProcessParts(settings, process, process_metrics(), start_tracing(settings))
        source = connect(parts)
        if app:
            app.bind(source.replicas, parts.tracing, source.read_metrics, source.models)
        prefer_throughput()

    def begin() -> None:
        if connections:
            connections.end()
        source.on_signal()

    def fail() -> None:
        if connections:
            connections.fail()
        source.fail()

    process.serve(needed_by=needed_by, begin=begin, fail=fail)
    if app:
        allow_next_server()
        process.announce_when(app.gateway.ready, app.pages)
    return Running(process, source, app)


def load_models(parts: ProcessParts, cores: int | None = None) -> ReplicaSource:
    """Load the models in this process; they can be changed while it serves. cores: how many each model may use;
    default: all that the process may use."""
    from gliner_bento.host.loader import Machine  # noqa: PLC0415
    from gliner_bento.host.models import LocalModels  # noqa: PLC0415
    from gliner_bento.replicas.local.replica import LocalReplica  # noqa: PLC0415  # a gateway without a model needs no scheduler

    load = partial(
        LocalReplica.load,
        observer_of=parts.metrics.of_model,
        on_hang=parts.process.end_hung,
        tracer=parts.tracing,
        cores=cores,
    )
    models = LocalModels(
        by_model(parts.settings),
        parts.settings,
        Machine(load, cores),
        journal=parts.process.models_journal,
        linger_s=2 * ROWS_AGE_S,  # until then, every gateway has read the rows again
    )

    def fail() -> None:
        for replica in models.loaded():
            replica.close()

    async def close() -> None:
        timeout_s = parts.settings.shutdown_timeout_s
        await asyncio.gather(*(asyncio.to_thread(replica.drain, timeout_s) for replica in models.loaded()))
        fail()

    try:
        models.start()
    except BaseException:
        fail()
        raise
    return ReplicaSource(models.replicas, models=models, fail=fail, close=close)
