"""Options of the BentoML services: our own, and those of the configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gliner_bento.settings import Settings

_TIMEOUT_MARGIN_S = 10.0
"""BentoML's timeout is longer than ours by this margin, so that our deadline ends a request."""
_EVERY_URL = ".*"


def bentoml_options(settings: Settings, service: str) -> dict[str, Any]:
    """Arguments for `@bentoml.service` of `service`: our own values, overridden by the file's section `services`."""
    ours: dict[str, Any] = {"traffic": {"timeout": settings.request_timeout_s + _TIMEOUT_MARGIN_S}}
    ours["logging"] = {"access": {"enabled": False}}  # the gateway has an access log of its own
    ours["metrics"] = {"enabled": False}  # BentoML's metrics get a series for each path that a client makes up
    if service == "GLiNERService":
        ours["http"] = {"host": _default_host(), "port": 3000}
        ours["runner_probe"] = {"enabled": False}  # the gateway probes the replicas, and needs only one of them
    given = settings.configuration().services.get(service, {})
    if "tracing" not in given and not _may_trace():
        ours["tracing"] = {"excluded_urls": _EVERY_URL}  # else BentoML makes spans that no exporter collects
    return {
        key: {**ours.get(key, {}), **value} if isinstance(value, Mapping) else value
        for key, value in (ours | given).items()
    }


def handles_requests(settings: Settings) -> bool:
    """Whether requests must pass through BentoML's app, because the operator has set an option that applies there.
    Otherwise they go to the gateway directly, which saves time."""
    given = settings.configuration().services.get("GLiNERService", {})
    return (
        _may_trace()
        or not given.keys().isdisjoint({"logging", "traffic", "tracing"})
        or "cors" in given.get("http", {})
    )


def several_gateways(settings: Settings) -> bool:
    """Whether there may be several gateway processes: BentoML's workers of the service."""
    given = settings.configuration().services.get("GLiNERService", {})
    return bool(given.get("workers", 1) != 1)


def default_host(settings: Settings) -> str:
    """The address on which `bentoml serve` listens without `--host` and BENTOML_HOST."""
    return str(bentoml_options(settings, "GLiNERService")["http"]["host"])


def _default_host() -> str:
    """All addresses in a container, whose loopback address nobody else can reach; else loopback."""
    return "0.0.0.0" if os.environ.get("BENTOML_CONTAINERIZED") else "127.0.0.1"


def _may_trace() -> bool:
    """Whether there is a BentoML configuration, which may enable tracing."""
    return any(os.environ.get(name) for name in ("BENTOML_CONFIG", "BENTOML_CONFIG_OPTIONS"))
