"""Processes of the server."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class ProcessFields(BaseSettings):
    """Processes of the server."""

    log_format: Literal["text", "json"] = Field("text", description="Format of the log; json: an object per line.")
    log_level: Literal["auto", "debug", "info", "warning", "error"] = Field(
        "auto", description="Lowest level that is logged; auto: info, or what BentoML's --quiet and --debug say."
    )
    max_restarts: Annotated[int, Field(ge=0)] = Field(
        5,
        description="Maximum number of restarts of a service's processes within restart_window_s; when another one "
        "dies, the server ends (exit code 1).",
    )
    restart_window_s: float = Field(
        600.0, gt=0, le=86_400, description="Time in which restarts are counted for max_restarts, in seconds."
    )
    shutdown_timeout_s: float = Field(
        25.0,
        gt=0,
        le=86_400,
        description="Maximum time from SIGTERM to the end of the server, in seconds; requests that run until 2 s "
        "before it fail (503). Kubernetes kills after terminationGracePeriodSeconds, 30 by default.",
    )
