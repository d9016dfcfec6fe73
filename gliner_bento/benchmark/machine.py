"""What a result belongs to: commit, hardware, versions, settings. A number without them cannot be compared later."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from gliner_bento.setting_names import ENV_PREFIX
from gliner_bento.settings import PROJECT_ROOT

PACKAGES = (
    *("aiohttp", "bentoml", "gliner", "numpy", "onnxruntime", "peft", "polylora", "ray", "tokenizers", "torch"),
    "transformers",
    "gliner-bento",
)


def provenance() -> dict[str, Any]:
    """Plain values."""
    return {
        "commit": output("git", "rev-parse", "HEAD"),
        "uncommitted": bool(output("git", "status", "--porcelain")),
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "flags": _flags(("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8")),
            "memory_bytes": psutil.virtual_memory().total,
            "system": platform.platform(),
            "python": platform.python_version(),
            "load_before": list(os.getloadavg()),
        },
        "packages": versions(PACKAGES),
        "environment": {name: value for name, value in os.environ.items() if name.startswith((ENV_PREFIX, "OMP_"))},
    }


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """The installed version of each, None where there is none."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def output(*command: str) -> str | None:
    """What a command writes, in the project's folder; None where it fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT_ROOT)
    except FileNotFoundError:
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def _cpu() -> str:
    return _cpuinfo("model name") or platform.processor()


def _flags(wanted: Iterable[str]) -> list[str]:
    flags = set(_cpuinfo("flags").split())
    return [flag for flag in wanted if flag in flags]


def _cpuinfo(name: str) -> str:
    """A value of the first processor where Linux tells it, else nothing."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
