"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use: its affinity, or the container's CPU quota if that is lower."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    try:
        quota_us, period_us = map(int, quota_file.read_text().split())
    except (OSError, ValueError):  # no quota: "max 100000"
        return allowed
    return max(1, min(allowed, quota_us // period_us))
