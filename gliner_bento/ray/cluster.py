"""Connects to a Ray cluster, places replicas on it, and reads its errors."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from functools import partial

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from gliner_bento.errors import one_line
from gliner_bento.process.run import Parts, Source
from gliner_bento.ray.host import HostedReplica
from gliner_bento.ray.options import replica_options
from gliner_bento.replicas.fleet.fleet import FleetOptions
from gliner_bento.replicas.ray.fleet import RayFleet
from gliner_bento.settings import Settings

_CAUSE = re.compile(r"^(?:[\w.]*\.)?(?:StartupError|SettingsError|ModelError|OSError): (.+)$", re.MULTILINE)


def connect() -> None:
    """Connect to the cluster of RAY_ADDRESS, or to a new one on this machine, which ends with this process. Ray's usage
    statistics are off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address=os.environ.get("RAY_ADDRESS", "local"), include_dashboard=False)


def replicas(settings: Settings) -> serve.Application:
    """The application with the replicas only. Ray must be connected."""
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    deployment = serve.deployment(HostedReplica, name="GLiNERReplica", **replica_options(settings, has_gpus=has_gpus))
    return deployment.bind(settings)


def reach(handle: DeploymentHandle, parts: Parts) -> Source:
    """The replicas of a deployment, for the gateway of the running event loop."""
    fleet = RayFleet(handle, parts.settings.view(FleetOptions), parts.metrics.on_repeat)
    loop = asyncio.get_running_loop()
    fail = partial(loop.call_soon_threadsafe, fleet.fail)
    return Source(fleet, fail=fail, close=fleet.close, read_metrics=fleet.metrics)


def reason(error: BaseException, details: Sequence[str] = ()) -> str:
    """The reason of an error of Ray, in one line: the message of our own error if a traceback in Ray's message, or in
    `details`, has one; else Ray's message."""
    causes: list[str] = _CAUSE.findall("\n".join([str(error), *details]))
    return causes[-1] if causes else one_line(error)
