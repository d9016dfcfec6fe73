"""The models of a server on Ray: one deployment of replicas per model. Ray scales each by its own load."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle

from gliner_bento.errors import NotReady, NotSupported, StartupError
from gliner_bento.model_types import ModelRow
from gliner_bento.process.run import ProcessParts, ReplicaSource
from gliner_bento.ray.cluster import reason
from gliner_bento.ray.host import ActorReplica
from gliner_bento.ray.options import replica_options, replica_settings
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.fleet.fleet import FleetOptions
from gliner_bento.replicas.ray.fleet import RayFleet
from gliner_bento.settings import Settings

logger = logging.getLogger(__name__)

Handles = Mapping[str | None, DeploymentHandle]
"""The deployment of each model, by the model's name, the default model first. A single model may have the name None."""

_POLL_S = 0.1


def replica_applications(settings: Settings) -> dict[str | None, serve.Application]:
    """The application with the replicas of each model. Ray must be connected."""
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    models = replica_settings(settings)
    return {
        name: serve.deployment(
            ActorReplica,
            name=_named("GLiNERReplica", name),
            **replica_options(settings_of_model, has_gpus=has_gpus, models=len(models)),
        ).bind(settings_of_model)
        for name, settings_of_model in models.items()
    }


def deploy(settings: Settings, application: str) -> Handles:
    """Start an application for each model, and wait until each runs or has failed.

    Raises `StartupError` if a required model has failed, or all have.
    """
    applications = replica_applications(settings)
    targets = [
        serve.RunTarget(target=target, name=_named(application, name), route_prefix=None)
        for name, target in applications.items()
    ]
    handles = dict(zip(applications, serve.run_many(targets, wait_for_applications_running=False), strict=True))
    while _is_deploying(handles):
        time.sleep(_POLL_S)
    failed = failures(handles)
    for name, why in failed.items():
        if len(failed) == len(handles) or _row(settings, name).required:
            raise StartupError(why)
    return handles


def connect_fleets(handles: Handles, parts: ProcessParts) -> ReplicaSource:
    """A fleet of each model's replicas, for the gateway of the running event loop."""
    settings = replica_settings(parts.settings)
    fleets = {
        name: RayFleet(handle, settings[name].view(FleetOptions), parts.metrics.on_repeat)
        for name, handle in handles.items()
    }
    loop = asyncio.get_running_loop()

    def fail() -> None:
        for fleet in fleets.values():
            loop.call_soon_threadsafe(fleet.fail)

    async def close() -> None:
        for fleet in fleets.values():
            await fleet.close()

    async def read_metrics() -> Mapping[str, bytes]:
        answers = await asyncio.gather(*(fleet.metrics() for fleet in fleets.values()))
        return {replica: metrics for answer in answers for replica, metrics in answer.items()}

    models = DeployedModels(parts.settings, handles, fleets) if parts.settings.models else None
    return ReplicaSource({**fleets}, fail=fail, close=close, read_metrics=read_metrics, models=models)


def failures(handles: Handles) -> dict[str | None, str]:
    """The error of each model whose deployment Ray has given up. Blocks."""
    applications = serve.status().applications
    errors = {}
    for name, handle in handles.items():
        application = applications.get(handle.app_name)
        deployment = application and application.deployments.get(handle.deployment_name)
        if deployment and deployment.status == "DEPLOY_FAILED":
            errors[name] = reason(StartupError(deployment.message))
    return errors


class DeployedModels:
    """Implements `Models` over deployments, which do not change while the server runs."""

    def __init__(self, settings: Settings, handles: Handles, fleets: Mapping[str | None, RayFleet]) -> None:
        self._settings, self._handles, self._fleets = settings, handles, fleets
        self._logged = set[str | None]()

    async def rows(self) -> Sequence[ModelRow]:
        """See `Models`. Asks Ray only about models without a replica."""
        absent = {name: self._handles[name] for name, fleet in self._fleets.items() if not fleet.replicas}
        try:
            failed = await asyncio.to_thread(failures, absent) if absent else {}
        except RayError as error:
            raise NotReady("Ray does not answer; try again") from error
        for name in failed.keys() - self._logged:
            logger.error("the model %s could not be loaded: %s", name or self._settings.model, failed[name])
        self._logged |= failed.keys()
        return [_row(self._settings, name, failed.get(name)) for name in self._fleets]

    async def apply(self, *_: Any) -> NoReturn:
        """Every change is refused."""
        raise NotSupported("the models of a server on Ray cannot be changed while it runs")

    def replica(self, name: str) -> Replica:
        return self._fleets[name]

    def forget(self, name: str) -> None:
        """Does nothing: models are not removed."""


def _row(settings: Settings, name: str | None, failure: str | None = None) -> ModelRow:
    own = settings.model_settings.get(name or "", {})
    return ModelRow(
        name=name,
        state="failed" if failure else "ready",
        reason=failure,
        pinned=own.get("pinned", False),
        required=own.get("required", False),
        limits=own,
    )


def _is_deploying(handles: Handles) -> bool:
    applications = serve.status().applications
    return any(applications[handle.app_name].status == "DEPLOYING" for handle in handles.values())


def _named(kind: str, model: str | None) -> str:
    return f"{kind}-{model}" if model else kind
