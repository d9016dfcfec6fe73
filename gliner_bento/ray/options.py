"""Ray Serve's options of the deployments, decided from the settings. No Ray."""

from __future__ import annotations

from typing import Any

from gliner_bento.replicas.ray.scaling import WaitingTokensPolicy
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings.cores import usable_cores

ROUTER = "gliner_bento.replicas.ray.router:NamedReplicaRouter"
POLICY = f"{WaitingTokensPolicy.__module__}:{WaitingTokensPolicy.__name__}"

MARGIN_S = 5.0
"""An actor that is asked to end waits for its requests, which end by their deadlines, so much longer."""

MIN_CONCURRENT_CALLS = 256
"""Of a replica: its scheduler makes batches of the calls that it has."""

HEAD_NODE = {"node:__internal_head__": 0.001}
"""Gateways run where Ray's own control processes do: another node may be lost without a client's connection."""

NO_ACCESS_LOG = {"enable_access_log": False}
"""The gateway has an access log of its own."""

FOR_THROUGHPUT = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",  # fewer threads, less logging, calls over gRPC
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",  # a part of that: a port for HTTP at each replica
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "5000",  # 100 by default, in every process
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "1",  # 0.1 by default; a replica is started or stopped so much later
    "RAY_worker_niceness": "0",  # 15 by default: everything else on the machine comes before the model
}
"""Environment variables that Ray's processes read when they start."""

MEANINGLESS = {
    "models": "its replicas serve one",
    "cuda_devices": "Ray assigns the GPUs (ray_actor_options)",
    "max_restarts": "Ray starts replicas again without a limit",
    "restart_window_s": "Ray starts replicas again without a limit",
}
"""Settings that would change nothing, and why."""

MEANINGLESS_BEHIND_THE_PROXY = {
    "header_timeout_s": "Ray's proxy accepts the connections",
    "body_timeout_s": "Ray's proxy accepts the connections",
    "shutdown_timeout_s": "actors end when their requests have ended (request_timeout_s)",
}
"""The same, for a gateway that is a deployment."""


def check(settings: Settings, *, proxied: bool) -> None:
    """Raise `SettingsError` for the first setting that has a value and no meaning. proxied: by Ray's proxy."""
    for name, reason in (MEANINGLESS | (MEANINGLESS_BEHIND_THE_PROXY if proxied else {})).items():
        if getattr(settings, name) != type(settings).model_fields[name].default:
            raise SettingsError(f"{name}: has no meaning with Ray: {reason}")
    if settings.max_instances and settings.max_instances < settings.num_instances:
        raise SettingsError(
            f"max_instances: {settings.max_instances} is less than num_instances, which is {settings.num_instances}"
        )


def replica_options(settings: Settings, *, has_gpus: bool, cores: int | None = None) -> dict[str, Any]:
    """Of the deployment of the model. has_gpus: the cluster's nodes. cores: of this one; replicas divide them."""
    most = max(settings.num_instances, settings.max_instances)
    gpus = 1 if settings.device == "cuda" or (settings.device == "auto" and has_gpus) else 0
    cpus = 1 if gpus else max(1, (cores or usable_cores()) // most)
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
    """Of the deployment of the gateway. What it does not admit is refused with our error body; Ray's limit is for more
    requests than connections are meant to be."""
    return {
        "num_replicas": 1,
        "ray_actor_options": {"num_cpus": 0, "resources": HEAD_NODE},
        "max_ongoing_requests": settings.max_connections,
        "max_queued_requests": settings.max_connections,
        "backpressure_config": {"status_code": 429, "retry_after_s": 1},
        "graceful_shutdown_timeout_s": settings.request_timeout_s + MARGIN_S,
        "logging_config": NO_ACCESS_LOG,
    }
