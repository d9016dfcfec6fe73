"""The Helm chart's pod, as podman plays its Deployment: probes, API keys from a Secret, restrictions, and its end.

Podman is no Kubernetes: version 4 knows no sleep in preStop, no named port in a probe, no grace period, no fsGroup and
no size of an emptyDir, publishes each port, and writes a Secret's content without decoding it. So the port is removed,
the Secret's file is written from here, and the pod is stopped with its grace period.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from deploy.containers.image import readme_differences
from deploy.containers.podman import ASK, Container, ContainerError, podman
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT
from reliability.measurement import Measurement, Target

_CHART = PROJECT_ROOT / "deploy" / "helm" / "gliner-bento"
_RELEASE, _SECRET = "played", "gliner-bento-played-keys"
_WRITABLE = {"/tmp", "/cache"}
_PODMANS = {"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/run/.containerenv", "/dev/termination-log"}
"""Files that podman mounts into every container."""
_NEW_KEY_S, _RUNS_S, _POLL_S = 10.0, 60.0, 0.5
_LONG = {"text": "Bill Gates founded Microsoft in 1975. " * 800, "labels": ["person", "organization", "date"]}


class _Caller(Container):
    """A container that is asked with an API key, unless another one is given."""

    def __init__(self, name: str, image: str, key: str) -> None:
        super().__init__(name, image)
        self.authorization = {"Authorization": f"Bearer {key}"}

    def ask(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        return super().ask(path, body, self.authorization if headers is None else headers)


def pod(*, image: str, settings: Mapping[str, object]) -> Measurement:
    """Play the pod of `image`, a name that podman knows, and try it."""
    at_start = provenance()
    deployment = _rendered(image, settings)
    spec = deployment["spec"]["template"]["spec"]
    (server,) = spec["containers"]
    startup = server["startupProbe"]
    facts: dict[str, Any] = {"image": image, "podman": podman("--version").split()[-1]}
    with _played(deployment, image) as (container, keys):
        limit_s = float(startup["periodSeconds"] * startup["failureThreshold"])
        ready_s = _until(lambda: container.ask(startup["httpGet"]["path"])[0] == 200, limit_s)
        targets = [
            Target("until the startup probe succeeds", "s", ready_s, limit_s),
            *_probed(container, server, facts),
            Target("differences from the README's answer", "values", readme_differences(container), 0),
            *_metrics(container, facts),
            *_inside(container, facts),
            *_new_key(container, keys),
            *_ended(container, spec["terminationGracePeriodSeconds"], facts),
        ]
    notes = [
        f"The Deployment as helm renders it, played by podman {facts['podman']} without a network. "
        "Podman runs neither the probes nor preStop; the Secret's file was replaced in place.",
        "Times are those of the machine under its other load (`load before`), not of an idle one.",
    ]
    return Measurement("chart", "python -m deploy.containers pod --image NAME", targets, facts, at_start, notes)


def _rendered(image: str, settings: Mapping[str, object]) -> dict[str, Any]:
    """The chart's Deployment, without its port."""
    command = [sys.executable, str(PROJECT_ROOT / "tools" / "kubernetes_tools.py")]
    tools = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    repository, _, tag = image.rpartition(":")
    given = {"image.repository": repository, "image.tag": tag, "image.pullPolicy": "Never", "replicaCount": 1}
    given |= {"apiKeys.existingSecret": _SECRET} | {f"settings.{name}": value for name, value in settings.items()}
    helm = [f"{tools}/helm", "template", _RELEASE, str(_CHART), "--show-only", "templates/deployment.yaml"]
    helm += [f"--set={name}={value}" for name, value in given.items()]
    output = subprocess.run(helm, check=True, stdout=subprocess.PIPE, text=True).stdout
    deployment: dict[str, Any] = yaml.safe_load(output)
    del deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    return deployment


@contextmanager
def _played(deployment: Mapping[str, Any], image: str) -> Iterator[tuple[_Caller, Path]]:
    """The pod's container and the file of its API keys. All that was made is removed at the end."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET}, "data": {"keys.yaml": "W10="}}
    with tempfile.TemporaryDirectory(prefix="chart-") as folder:
        manifests = Path(folder) / "manifests.yaml"
        manifests.write_text(yaml.safe_dump_all([secret, deployment]), encoding="utf-8")
        try:
            podman("kube", "play", "--network", "none", "--start=false", str(manifests))
            keys = Path(podman("volume", "inspect", "--format", "{{.Mountpoint}}", _SECRET), "keys.yaml")
            key = _write_key(keys)
            name = f"{deployment['metadata']['name']}-pod-0"
            podman("pod", "start", name)
            yield _Caller(f"{name}-server", image, key), keys
        finally:
            for made in (("kube", "down", str(manifests)), ("volume", "rm", _SECRET), ("secret", "rm", _SECRET)):
                with suppress(ContainerError):
                    podman(*made)


def _write_key(file: Path) -> str:
    """Make the file one with a new key, which is returned."""
    key = f"gliner_{secrets.token_urlsafe(32)}"
    entry = {"name": "play", "sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": ["admin"]}
    file.write_text(json.dumps([entry]), encoding="utf-8")
    return key


def _probed(container: Container, server: Mapping[str, Any], facts: dict[str, Any]) -> list[Target]:
    """Probes have no key; other routes need one."""
    paths = {probe: server[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    facts["probes"] = {path: container.ask(path, headers={})[0] for path in sorted(set(paths.values()))}
    without, _ = container.ask("/v1/model", headers={})
    return [
        Target("probes that fail", "probes", sum(status != 200 for status in facts["probes"].values()), 0),
        Target("answers to requests without a key", "answers", float(without != 401), 0),
    ]


def _metrics(container: Container, facts: dict[str, Any]) -> list[Target]:
    """The autoscalers' metric, with an API key as a ServiceMonitor sends it."""
    status, content = container.ask("/metrics")
    facts["metrics"] = status
    missing = sum(f"\n{name}{{" not in content for name in ("gliner_waiting_tokens", "gliner_ready"))
    return [Target("metrics missing, of those that autoscalers and alerts need", "metrics", missing, 0)]


def _inside(container: Container, facts: dict[str, Any]) -> list[Target]:
    """What the container may do."""
    status = dict(
        line.split(":\t", 1) for line in container.execute("cat", "/proc/1/status").splitlines() if ":\t" in line
    )
    mounts = [line.split() for line in container.execute("cat", "/proc/mounts").splitlines()]
    writable = {
        words[1] for words in mounts if words[3].split(",")[0] == "rw" and words[0].startswith(("/", "overlay"))
    }
    facts |= {"uid": status["Uid"].split()[0], "capabilities": status["CapBnd"], "writable": sorted(writable)}
    bits = sum(int(status[name], 16).bit_count() for name in ("CapEff", "CapPrm", "CapBnd"))
    unconfined = (status["NoNewPrivs"] != "1") + (status["Seccomp"] != "2")
    return [
        Target("capabilities", "capabilities", bits, 0),
        Target("processes of root, of one", "processes", float(facts["uid"] == "0"), 0),
        Target("no-new-privileges and seccomp, missing", "restrictions", unconfined, 0),
        Target("writable file systems besides /tmp and /cache", "mounts", len(writable - _WRITABLE - _PODMANS), 0),
    ]


def _new_key(container: _Caller, keys: Path) -> list[Target]:
    """The Secret's file changes while the server runs."""
    old = container.authorization
    container.authorization = {"Authorization": f"Bearer {_write_key(keys)}"}
    new_s = _until(lambda: container.ask("/v1/model")[0] == 200, _NEW_KEY_S)
    withdrawn, _ = container.ask("/v1/model", headers=old)
    return [
        Target("until a new API key of the Secret is accepted", "s", new_s, _NEW_KEY_S),
        Target("answers to the old API key", "answers", float(withdrawn != 401), 0),
    ]


def _ended(container: _Caller, grace_s: int, facts: dict[str, Any]) -> list[Target]:
    """The pod is stopped while a long text is processed, which a client in another container has sent."""
    in_pod = ["--pod", container.name.removesuffix("-server")]
    command = ["podman", "run", "--rm", "--interactive", "--no-healthcheck", *in_pod]
    client = subprocess.Popen(
        [*command, container.image, "python3", "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert client.stdin
    client.stdin.write(json.dumps(["/v1/extract", container.authorization, _LONG]))
    client.stdin.close()
    runs_s = _until(lambda: _running(container), _RUNS_S)
    began_s = time.monotonic()
    podman("stop", "--time", str(grace_s), container.name)
    ended_s = time.monotonic() - began_s
    assert client.stdout
    status, content = json.loads(client.stdout.read() or '[0, ""]')
    client.wait()
    facts |= {"status_of_running": status, "entities_of_running": len(json.loads(content).get("entities", []))}
    facts["exit_code"] = container.state()["ExitCode"]
    return [
        Target("requests running at the stop, short of 1", "requests", float(runs_s is None), 0),
        Target("requests running at the stop and not answered", "requests", float(status != 200), 0),
        Target("from the stop to the end", "s", ended_s, float(grace_s)),
        Target("exit code", "", facts["exit_code"], 0),
    ]


def _running(container: Container) -> bool:
    status, content = container.ask("/v1/status")
    return status == 200 and json.loads(content)["queue"]["running_items"] > 0


def _until(condition: Callable[[], bool], limit_s: float) -> float | None:
    """Seconds until the condition holds; None if it does not within `limit_s`."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < limit_s:
        if condition():
            return time.monotonic() - began_s
        time.sleep(_POLL_S)
    return None
