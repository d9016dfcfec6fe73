"""Options of the BentoML services: our own, and those of the configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gliner_bento.settings import Settings

_TIMEOUT_MARGIN_S = 10.0
"""BentoML's timeout is longer than ours by this margin, so that our deadline ends a request."""
# BentoML creates spans of every message even if no exporter collects them.
_EVERY_URL = ".*"


def bentoml_options(settings: Settings, service: str) -> dict[str, Any]:
    """Arguments for `@bentoml.service` of `service`: our own values, overridden by the file's section `services`."""
    relied_on: dict[str, Any] = {"traffic": {"timeout": settings.request_timeout_s + _TIMEOUT_MARGIN_S}}
    relied_on["logging"] = {"access": {"enabled": False}}  # the gateway has an access log of its own
    relied_on["metrics"] = {"enabled": False}  # their labels are the paths that clients send
    if service == "GLiNERService":
        relied_on["http"] = {"host": _default_host(), "port": 3000}
        relied_on["runner_probe"] = {"enabled": False}  # the gateway is ready if one replica is; it probes them itself
    given = settings.configuration().services.get(service, {})
    if "tracing" not in given and not _may_trace():
        relied_on["tracing"] = {"excluded_urls": _EVERY_URL}
    return {
        key: {**relied_on.get(key, {}), **value} if isinstance(value, Mapping) else value
        for key, value in (relied_on | given).items()
    }


def handles_requests(settings: Settings) -> bool:
    """Whether an option of the operator makes BentoML do something with the gateway's requests. Without one, its app
    adds 40 % to the CPU time of a request and nothing to the answer."""
    given = settings.configuration().services.get("GLiNERService", {})
    return (
        _may_trace()
        or not given.keys().isdisjoint({"logging", "traffic", "tracing"})
        or "cors" in given.get("http", {})
    )


def default_host(settings: Settings) -> str:
    """The address on which `bentoml serve` listens without its flag and without BENTOML_HOST."""
    return str(bentoml_options(settings, "GLiNERService")["http"]["host"])


def _default_host() -> str:
    """All addresses in a container, whose loopback address nobody else can reach; else loopback."""
    return "0.0.0.0" if os.environ.get("BENTOML_CONTAINERIZED") else "127.0.0.1"


def _may_trace() -> bool:
    """Whether there is a BentoML configuration, which may enable tracing."""
    return any(os.environ.get(name) for name in ("BENTOML_CONFIG", "BENTOML_CONFIG_OPTIONS"))
