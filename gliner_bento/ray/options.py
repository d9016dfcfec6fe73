"""Ray Serve's options for the deployments, decided from the settings. Imports no Ray."""

from __future__ import annotations

import math
from typing import Any

from gliner_bento.process.instances import by_model
from gliner_bento.replicas.ray.scaling import WaitingTokensPolicy
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings.cores import usable_cores
from gliner_bento.settings.marks import NoEffectWithRay, marked

ROUTER = "gliner_bento.replicas.ray.router:NamedReplicaRouter"
POLICY = f"{WaitingTokensPolicy.__module__}:{WaitingTokensPolicy.__name__}"

MARGIN_S = 5.0
"""For an actor to shut down, Ray waits this much longer than `request_timeout_s`, after which no request runs."""

MIN_CONCURRENT_CALLS = 256
"""Ray lets at least this number of concurrent calls into a replica, so that its scheduler can form full batches."""

HEAD_NODE = {"node:__internal_head__": 0.001}
"""Gateways run on the head node, like Ray's control processes, so that losing another node closes no connection."""

NO_ACCESS_LOG = {"enable_access_log": False}
"""The gateway has an access log of its own."""

FOR_THROUGHPUT = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",  # fewer threads, less logging, calls over gRPC
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",  # no HTTP port at each replica, which the option above would enable
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "5000",  # 100 by default, in every process
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "1",  # 0.1 by default; replicas start and stop up to 1 s later
    "RAY_worker_niceness": "0",  # 15 by default: all other processes would have precedence over the model
}
"""Environment variables that Ray's processes read when they start."""


def check(settings: Settings, *, proxied: bool) -> None:
    """Raise `SettingsError` for the first setting that is set but has no effect. proxied: behind Ray's proxy."""
    for name, mark in marked(type(settings), NoEffectWithRay).items():
        is_set = getattr(settings, name) != type(settings).model_fields[name].default
        if is_set and (proxied or not mark.proxied):
            raise SettingsError(f"{name}: has no effect with Ray: {mark.reason}")
    if settings.max_instances and settings.max_instances < settings.num_instances:
        raise SettingsError(
            f"max_instances: {settings.max_instances} is less than num_instances, which is {settings.num_instances}"
        )


def replica_settings(settings: Settings) -> dict[str | None, Settings]:
    """The settings of each model's replicas, by the model's name, the default model first. Unlike in `by_model`, the
    models do not divide `target_memory_fraction`: `ActorReplica` reduces it to the part of a GPU that Ray assigns."""
    undivided = {"target_memory_fraction": settings.target_memory_fraction}
    return {name: own.model_copy(update=undivided) for name, own in by_model(settings).items()}


def replica_options(settings: Settings, *, has_gpus: bool, models: int = 1, cores: int | None = None) -> dict[str, Any]:
    """Options of a model's deployment. has_gpus: whether the cluster has GPUs. models: number of models, which divide
    GPUs and cores. cores: those of this node, which all replicas divide; default: all that this process may use."""
    cores = cores or usable_cores()
    replicas_of_all_models = models * max(settings.num_instances, settings.max_instances)
    on_gpu = settings.device == "cuda" or (settings.device == "auto" and has_gpus)
    gpus = _share(1, models) if on_gpu else 0
    min_cpus = min(1, _share(cores, models))  # below 1 only if there are fewer cores than models
    cpus = 1 if gpus else max(cores // replicas_of_all_models, min_cpus)
    scaling: dict[str, Any] = {"num_replicas": settings.num_instances}
    if settings.max_instances:
        policy = {
            "policy_function": POLICY,
            "policy_kwargs": {"target_waiting_tokens": settings.target_waiting_tokens},
        }
        bounds = {"min_replicas": settings.num_instances, "max_replicas": settings.max_instances}
        scaling = {"autoscaling_config": {**bounds, "policy": policy}}
    return {
        **scaling,
        "ray_actor_options": {"num_cpus": cpus, "num_gpus": gpus},
        "max_ongoing_requests": max(MIN_CONCURRENT_CALLS, settings.queue_capacity),
        "graceful_shutdown_timeout_s": settings.request_timeout_s + MARGIN_S,
        "logging_config": NO_ACCESS_LOG,
        "request_router_config": {"request_router_class": ROUTER, "max_backoff_s": 0.1},
    }


def gateway_options(settings: Settings) -> dict[str, Any]:
    """Options of the deployment of the gateway. The gateway refuses requests with our error body; Ray's own limits
    apply only beyond `max_connections` requests."""
    return {
        "num_replicas": 1,
        "ray_actor_options": {"num_cpus": 0, "resources": HEAD_NODE},
        "max_ongoing_requests": settings.max_connections,
        "max_queued_requests": settings.max_connections,
        "backpressure_config": {"status_code": 429, "retry_after_s": 1},
        "graceful_shutdown_timeout_s": settings.request_timeout_s + MARGIN_S,
        "logging_config": NO_ACCESS_LOG,
    }


def _share(whole: int, models: int) -> float:
    """A model's part of `whole`, rounded down to hundredths, so that the parts of all models fit into it."""
    return math.floor(100 * whole / models) / 100
