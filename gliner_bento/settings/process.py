"""Processes of the server."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import Count, CudaDevices
from gliner_bento.settings.marks import ForOneCaller, NoEffectWithRay


class ProcessFields(BaseSettings):
    """Processes of the server."""

    num_instances: Annotated[int, Field(ge=1, le=64), ForOneCaller(1)] = Field(
        1,
        description="Number of instances: processes that each hold the model and share the requests; on CPU, at most "
        "one per core. They divide the cores among them, and the memory of a GPU that several of them use.",
    )
    cuda_devices: Annotated[CudaDevices, NoEffectWithRay("Ray assigns the GPUs (ray_actor_options)")] = Field(
        (),
        description="CUDA devices of the instances, separated by commas, as in CUDA_VISIBLE_DEVICES; instances take "
        "them in turn. Unset: all instances use the setting device.",
    )
    max_outstanding_tokens: Count = Field(
        65_536,
        description="Maximum cost of the requests that an instance has not answered: their estimated tokens, plus 256 "
        "per text. An instance at this maximum gets no more requests; while all have reached it, requests wait. "
        "Only with several instances.",
    )
    max_instances: Annotated[int, Field(ge=0, le=10_000), ForOneCaller(0)] = Field(
        0,
        description="Maximum number of instances of each model. How many there are depends on the load; at least "
        "num_instances. 0: always num_instances. Only with Ray (see docs/scaling.md).",
    )
    target_waiting_tokens: Count = Field(
        8192,
        description="Number of tokens that may wait per instance; if more wait, another instance is started, up to "
        "max_instances.",
    )
    log_format: Literal["text", "json"] = Field("text", description="Format of the log; json: an object per line.")
    log_level: Literal["auto", "debug", "info", "warning", "error"] = Field(
        "auto",
        description="Lowest level that is logged; auto: info, or what BentoML's --quiet and --debug say. "
        "Other packages' info and Python's warnings are logged at debug only.",
    )
    enable_tracing: bool = Field(
        False,
        description="Export OpenTelemetry spans over OTLP, as the OTEL_ environment variables say (requires the extra "
        "otel; see docs/operations.md).",
    )
    max_restarts: Annotated[int, Field(ge=0), NoEffectWithRay("Ray starts replicas again without a limit")] = Field(
        5,
        description="Maximum number of restarts of a service's processes within restart_window_s; when another "
        "process dies in that time, the server ends (exit code 1).",
    )
    restart_window_s: Annotated[float, NoEffectWithRay("Ray starts replicas again without a limit")] = Field(
        600.0, gt=0, le=86_400, description="Time in which restarts are counted for max_restarts, in seconds."
    )
    shutdown_timeout_s: Annotated[
        float, NoEffectWithRay("actors end when their requests have ended (request_timeout_s)", proxied=True)
    ] = Field(
        25.0,
        gt=0,
        le=86_400,
        description="Maximum time from SIGTERM to the end of the server, in seconds; requests that still run 2 s "
        "before the end fail (503). Kubernetes kills after terminationGracePeriodSeconds, 30 by default.",
    )
