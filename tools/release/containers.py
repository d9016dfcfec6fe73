"""The image, built from a clone and tried under restrictions with podman, as `make image-test` does."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

from .debian import files_of
from .processes import clean
from .table import CommandFailed, NotHere, output_of

_CONFIGURATION = """\
[containers]
default_ulimits = ["nofile={nofile}:{nofile}", "nproc={nproc}:{nproc}"]
netns = "host"
[engine]
runtime = "runc"
[engine.runtimes]
runc = ["{runc}"]
"""
_MAX_PROCESSES = 32768


def image(clone: Path, folder: Path) -> str:
    """Build and try the image. Raises NotHere without podman, mmdebstrap or root's rights, ValueError if a target is
    missed. Its base and the image stay in podman's store."""
    for needed in ("podman", "mmdebstrap"):
        if not shutil.which(needed):
            raise NotHere(f"it needs {needed}")
    if os.geteuid() != 0:
        raise NotHere("its base needs root's rights")
    stored = folder / "image" / "image.json"
    environment = clean() | {"PYTHONPATH": str(clone), "BENTOML_HOME": str(folder / "store")} | runtime(folder)
    try:
        command = (sys.executable, "-m", "deploy.containers", "image", "--out", stored.parent)
        output_of(*command, cwd=clone, env=environment)
    except CommandFailed:
        if not stored.exists():
            raise
    return verdict(json.loads(stored.read_bytes()))


def verdict(measured: dict[str, Any]) -> str:
    """What a stored measurement of the image says. Raises ValueError if a target is missed."""
    targets = {one["name"]: one for one in measured["targets"]}
    if missed := [f"{name}: {one['value']}" for name, one in targets.items() if not one["met"]]:
        raise ValueError(f"missed: {'; '.join(missed)}")
    healthy_s = targets["until HEALTHCHECK says healthy"]["value"]
    return (
        f"{measured['size_gb']:.2f} GB, healthy after {healthy_s:.0f} s, {len(targets)} of {len(targets)} targets met"
    )


def runtime(folder: Path) -> dict[str, str]:
    """What lets podman start containers here: nothing, or a configuration with Debian's runc and this process's limits.
    crun, podman's own choice, starts none where cgroups are of version 1 or both versions are mounted."""
    host = json.loads(output_of("podman", "info", "--format", "json"))["host"]
    if "CONTAINERS_CONF" in os.environ or host["cgroupVersion"] != "v1" or host["ociRuntime"]["name"] != "crun":
        return {}
    file = folder / "containers.conf"
    _, nofile = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, nproc = resource.getrlimit(resource.RLIMIT_NPROC)
    nproc = _MAX_PROCESSES if nproc == resource.RLIM_INFINITY else min(nproc, _MAX_PROCESSES)
    runc = files_of("runc") / "usr" / "sbin" / "runc"
    file.write_text(_CONFIGURATION.format(nofile=nofile, nproc=nproc, runc=runc))
    return {"CONTAINERS_CONF": str(file)}
