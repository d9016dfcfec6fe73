"""The container image under the restrictions of a cautious operator: no network, a read-only root, no capabilities.

It is asked the README's request, its model's process is killed, and it is stopped under load.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from deploy.containers.podman import BASE, Container, ContainerError, build, make_base, podman, running
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.settings.names import env_name
from reliability.known_answers import RIGHT, WRONG
from reliability.measurement import Measurement, Target

MAX_CPU_GB = 1.6
LINTER = "dockerfile-utils@0.16.3"
_HEALTHY_S, _AGAIN_S, _STOP_S, _LOAD_S = 300.0, 300.0, 30.0, 8.0
_COMPILERS = r"(.*-)?(as|c\+\+|c89|c99|cc|cc1|cc1plus|clang|clang\+\+|g\+\+|gcc|gfortran|ld|nvcc|rustc|tcc)(-[0-9.]+)?"
_README = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")
_GLINER_SERVE = {
    "GLINER_DEVICE": "cpu",
    "GLINER_DTYPE": "float32",
    "GLINER_MAX_BATCH_SIZE": "8",
    "GLINER_NUM_REPLICAS": "1",
    "GLINER_BATCH_WAIT_MS": "5",
    "GLINER_MEMORY_FRACTION": "0.8",
    "GLINER_ENABLE_FLASHDEBERTA": "false",
    "GLINER_ENABLE_PACKING": "true",
    "GLINER_DISABLE_COMPILE": "true",
    "GLINER_ROUTE_PREFIX": "/ner",
}
"""All variables of its container but the model and the quantization, which the bundled model would not show."""

_MODEL_PIDS = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    words = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    if "--service-name" in words and words[words.index("--service-name") + 1] == "GLiNERRunner":
        print(pid)
"""


def image(*, base: str | None, torch: str, settings: Mapping[str, object]) -> Measurement:
    """Build the image, and try it. base: an image with Python 3.11; default: one made of Debian's packages."""
    variables = {env_name(setting): str(value) for setting, value in settings.items()}
    at_start, began_s = provenance(), time.monotonic()
    if not base:
        make_base()
    name = build(base or BASE, torch)
    facts: dict[str, Any] = {"image": name, "built_s": time.monotonic() - began_s}
    facts |= {"size_gb": _size_gb(name), "base_gb": _size_gb(base or BASE)}
    targets = [
        *([Target("size of the image", "GB", facts["size_gb"], MAX_CPU_GB)] if torch == "cpu" else []),
        *_lint(facts),
        *_without_access(name, facts),
        *_restricted(name, variables, facts),
        *_with_keys(name, facts),
    ]
    notes = [
        f"Base: {base or 'Debian 12 by mmdebstrap'}, {facts['base_gb']:.2f} GB. Build: {facts['built_s']:.0f} s.",
        "Restrictions: `--network none --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges`. "
        "The client runs in a second container in the same network namespace.",
        f"Load at the stop: {facts['running_at_stop']} requests were running. Sent after it: "
        f"{', '.join(f'{count} {name}' for name, count in facts['sent_after_stop'].items()) or 'none'}.",
    ]
    return Measurement("image", "make image-test", targets, facts, at_start, notes)


def _size_gb(name: str) -> float:
    return int(podman("image", "inspect", "--format", "{{.Size}}", name)) / 1e9


def _lint(facts: dict[str, Any]) -> list[Target]:
    """What dockerfile-utils, the linter of VS Code's Docker extension, says; nothing where there is no npx."""
    if not shutil.which("npx"):
        facts["linter"] = "npx not found: not linted"
        return []
    dockerfile = PROJECT_ROOT / "deploy" / "docker" / "Dockerfile"
    ended = subprocess.run(
        ["npx", "--yes", LINTER, "lint", str(dockerfile)], capture_output=True, text=True, check=False
    )
    facts |= {"linter": LINTER, "lint": ended.stdout.strip()}
    return [Target(f"exit code of {LINTER.partition('@')[0]} lint", "", ended.returncode, 0)]


def _without_access(name: str, facts: dict[str, Any]) -> list[Target]:
    """Without API keys or allow_anonymous it does not start."""
    command = ["podman", "run", "--rm", "--network", "none", "--no-healthcheck", name]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    facts["refused_start"] = ended.stderr.strip().splitlines()[-1]
    refused = ended.returncode == 1 and facts["refused_start"].startswith("gliner-bento: address 0.0.0.0: others can")
    return [Target("starts without API keys and allow_anonymous", "starts", float(not refused), 0)]


def _restricted(name: str, variables: Mapping[str, str], facts: dict[str, Any]) -> list[Target]:
    """One container from its start to its end under load."""
    open_to_all = {"GLINER_ALLOW_ANONYMOUS": "true", "GLINER_MAX_QUEUE_WAIT_S": "60"}
    with running(name, {**open_to_all, **variables}) as container:
        healthy_s = container.wait_healthy(_HEALTHY_S)
        different = readme_differences(container)
        return [
            Target("until HEALTHCHECK says healthy", "s", healthy_s, _HEALTHY_S),
            Target("differences from the README's answer", "values", different, 0),
            *_inside(container, facts),
            *_killed(container, facts),
            *_stopped(container, facts),
        ]


def readme_differences(container: Container) -> float:
    """How many parts of the answer to the README's request differ from what the README shows."""
    request = re.search(r"/v1/extract .*?-d '(.*?)'\n```", _README, re.DOTALL)
    shown = re.search(r"```json\n(.*?)```", _README, re.DOTALL)
    if not request or not shown:
        raise ValueError("the README has no request or no answer")
    status, content = container.ask("/v1/extract", json.loads(request[1]))
    if status != 200:
        return 1.0
    one, other = _predicted(json.loads(content)), _predicted(json.loads(shown[1]))
    return float(len(one ^ other))


def _predicted(answer: dict[str, Any]) -> set[tuple[Any, ...]]:
    entities = {(found["start"], found["end"], found["text"], found["label"]) for found in answer["entities"]}
    return entities | {(one["head"]["text"], one["relation"], one["tail"]["text"]) for one in answer["relations"]}


def _inside(container: Container, facts: dict[str, Any]) -> list[Target]:
    """What the container is made of, and what its user may do."""
    compilers = container.find(f"! -type d -perm /111 -regextype posix-extended -regex '.*/{_COMPILERS}'")
    writable = container.find("-type d -writable ! -path /tmp")
    interfaces = [name for name in container.execute("ls", "/sys/class/net").split() if name != "lo"]
    uids = podman("top", container.name, "huser").split()[1:]
    facts |= {"compilers": compilers, "writable": writable, "uids": sorted(set(uids)), "interfaces": interfaces}
    return [
        Target("compilers and linkers in the image", "files", len(compilers), 0),
        Target("processes of root", "processes", sum(uid in ("0", "root") for uid in uids), 0),
        Target("writable folders outside of /tmp", "folders", len(writable), 0),
        Target("network interfaces besides loopback", "interfaces", len(interfaces), 0),
    ]


def _killed(container: Container, facts: dict[str, Any]) -> list[Target]:
    """The model's process gets SIGKILL; the container lives on, and answers again."""
    killed = container.execute("python3", "-c", _MODEL_PIDS).split()
    if not killed:
        raise ContainerError("there is no process of the model")
    container.execute("sh", "-c", f"kill -KILL {' '.join(killed)}")
    began_s, again_s = time.monotonic(), None
    facts["statuses_after_kill"] = Counter[str]()
    while again_s is None and time.monotonic() - began_s < _AGAIN_S:
        status, _ = container.ask(
            "/v1/extract", {"text": "Ada Lovelace lived in London.", "labels": ["person", "city"]}
        )
        facts["statuses_after_kill"][str(status)] += 1
        if status == 200:
            again_s = time.monotonic() - began_s
        else:
            time.sleep(0.5)
    facts["model_pids"] = [killed, container.execute("python3", "-c", _MODEL_PIDS).split()]
    if facts["model_pids"][1] == killed:
        raise ContainerError("the process of the model was not killed")
    return [Target("from SIGKILL of the model's process to the next answer", "s", again_s, _AGAIN_S)]


def _stopped(container: Container, facts: dict[str, Any]) -> list[Target]:
    """`podman stop` under load: what was sent before it is answered."""
    client = container.start_client("deploy.containers.load")
    assert client.stdin
    assert client.stdout
    client.stdout.readline()
    time.sleep(_LOAD_S)
    stop_s = time.monotonic()
    podman("stop", container.name)
    ended_s = time.monotonic()
    output, _ = client.communicate(timeout=300)
    outcomes = json.loads(output)
    before = [(kind, name, ended) for kind, name, sent, ended in outcomes if sent < stop_s]
    running_then = sum(ended > stop_s for _, _, ended in before)
    if not running_then:
        raise ContainerError("no request was running when the container was stopped")
    facts |= {
        "sent_before_stop": Counter(name for _, name, _ in before),
        "running_at_stop": running_then,
        "sent_after_stop": Counter(name for _, name, sent, _ in outcomes if sent >= stop_s),
        "exit_code": container.state()["ExitCode"],
    }
    return [
        Target(
            "requests sent before the stop and not answered", "requests", sum(kind != RIGHT for kind, _, _ in before), 0
        ),
        Target("wrong answers", "requests", sum(kind == WRONG for kind, *_ in outcomes), 0),
        Target("from `podman stop` to the end", "s", ended_s - stop_s, _STOP_S),
        Target("exit code after the stop", "", facts["exit_code"], 0),
    ]


def _with_keys(name: str, facts: dict[str, Any]) -> list[Target]:
    """With an API key that the image made, and the variables of gliner.serve's container."""
    new = ["podman", "run", "--rm", "--network", "none", "--no-healthcheck", name]
    new += ["python3", "-m", "gliner_bento.cli", "keys", "new", "app"]
    made = subprocess.run(new, capture_output=True, text=True, check=True, timeout=300)
    key = re.search(r"gliner_[\w-]+$", made.stderr.strip())
    if not key:
        raise ValueError("no key in the output of `keys new`")
    body = {"text": "Ada Lovelace lived in London.", "labels": ["person", "city"]}
    with running(name, _GLINER_SERVE | {"GLINER_API_KEYS": made.stdout}) as container:
        container.wait_healthy(_HEALTHY_S)
        closed, _ = container.ask("/ner", body)
        status, content = container.ask("/ner", body, {"Authorization": f"Bearer {key[0]}"})
    found = {entity["text"] for entity in json.loads(content)["entities"]} if status == 200 else set()
    facts |= {"gliner_serve_variables": _GLINER_SERVE, "status_without_key": closed, "status_with_key": status}
    return [
        Target("answers to requests without a key", "answers", float(closed != 401), 0),
        Target("entities missing on gliner.serve's route, moved by its variable", "entities", 2 - len(found), 0),
    ]
