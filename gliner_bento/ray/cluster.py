"""Connects to a Ray cluster, and reads its errors."""

from __future__ import annotations

import os
import re

import ray

from gliner_bento.errors import one_line

_CAUSE = re.compile(r"^(?:[\w.]*\.)?(?:StartupError|SettingsError|ModelError|OSError): (.+)$", re.MULTILINE)


def connect() -> None:
    """Connect to the cluster at RAY_ADDRESS, or to a new one on this machine, which ends with this process. Turns Ray's
    usage statistics off, unless RAY_USAGE_STATS_ENABLED is set."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address=os.environ.get("RAY_ADDRESS", "local"), include_dashboard=False)


def reason(error: BaseException) -> str:
    """The reason for an error of Ray, in one line: the message of our own error, if Ray's message has its traceback;
    otherwise Ray's message."""
    causes: list[str] = _CAUSE.findall(str(error))
    return causes[-1] if causes else one_line(error)
