"""Provenance of a measurement: commit, hardware, versions, settings. Without it, results cannot be compared later."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.settings.names import ENV_PREFIX

_PACKAGE_LIST = "aiohttp bentoml gliner numpy onnxruntime peft polylora ray tokenizers torch transformers gliner-bento"
PACKAGES = tuple(_PACKAGE_LIST.split())


def provenance() -> dict[str, Any]:
    """The provenance, as plain values for JSON."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted": bool(_git("status", "--porcelain")),
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "flags": _flags(("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": platform.platform(),
            "python": platform.python_version(),
            "load_before": list(os.getloadavg()),
        },
        "packages": versions(PACKAGES),
        "environment": {name: value for name, value in os.environ.items() if name.startswith((ENV_PREFIX, "OMP_"))},
    }


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """The installed version of each package, None if it is not installed."""
    installed: dict[str, str | None] = {}
    for package in packages:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = None
    return installed


def _git(*arguments: str) -> str | None:
    """The output of a git command in the project's checkout; None if there is no checkout, or if the command fails."""
    if not (PROJECT_ROOT / ".git").exists():
        return None
    try:
        process = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=PROJECT_ROOT)
    except FileNotFoundError:
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def _cpu() -> str:
    return _cpuinfo("model name") or platform.processor()


def _flags(candidates: Iterable[str]) -> list[str]:
    flags = set(_cpuinfo("flags").split())
    return [flag for flag in candidates if flag in flags]


def _cpuinfo(name: str) -> str:
    """The value of `name` for the first processor in /proc/cpuinfo; empty if that file does not exist."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
