"""The script behind `make image`, with commands in place of docker and podman; and what a Dockerfile promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bentoml._internal.container.generate import BENTO_PATH, BENTO_UID_GID
from doubles.answering_server import answering

from gliner_bento.settings.configuration import PROJECT_ROOT

BUILD = PROJECT_ROOT / "deploy" / "docker" / "build"
DOCKERFILE = (PROJECT_ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
FINAL = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Runs the script where the engines that are given work; the ended process, and the build's command line."""

    def run(*engines: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        record = tmp_path / "command"
        for engine in ("docker", "podman"):
            program = tmp_path / engine
            program.write_text(
                f"#!/bin/bash\n[ $1 != info ] || exit {int(engine not in engines)}\n"
                "[ $1 != image ] || echo 1530000000\n"
                f'[ $1 != build ] || printf "%s\\n" {engine} "$@" >{record}\n'
            )
            program.chmod(0o755)
        inherited = {name: value for name, value in os.environ.items() if name not in ("TORCH", "PIP_CONFIG_FILE")}
        ended = subprocess.run(
            [BUILD, "/store/gliner-bento/v1", "--no-cache"],
            env=inherited | {"PATH": f"{tmp_path}:/usr/bin:/bin"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return ended, record.read_text().splitlines() if record.exists() else []

    return run


def test_docker_builds_the_cpu_image_with_the_defaults_of_the_dockerfile(build):
    ended, command = build("docker", "podman")
    names = ["--tag", "gliner-bento:v1", "--tag", "gliner-bento:latest"]
    assert command == ["docker", "build", "--file", "Dockerfile", *names, "--no-cache", "/store/gliner-bento/v1"]
    assert ended.stdout.startswith("image: gliner-bento:v1, also as gliner-bento:latest, 1530 MB;")


def test_podman_builds_in_the_format_that_has_a_healthcheck(build):
    _, command = build("podman", BASE="mine:1", PIP_CONFIG_FILE="/etc/pip.conf", SOURCE_DATE_EPOCH="1700000000")
    assert command[0] == "podman"
    assert " ".join(command).endswith(
        " --format docker --build-arg BASE=mine:1 --build-arg SOURCE_DATE_EPOCH=1700000000"
        " --secret id=pip.conf,src=/etc/pip.conf --no-cache"
        " /store/gliner-bento/v1"
    )


def test_an_engine_can_be_chosen(build):
    assert build("docker", "podman", ENGINE="podman")[1][0] == "podman"


@pytest.mark.parametrize(("index", "argument"), [({}, ""), ({"TORCH_INDEX": "https://x/cu128"}, "https://x/cu128")])
def test_the_cuda_image_has_names_of_its_own_and_no_cpu_build(build, index, argument):
    _, command = build("docker", TORCH="cuda", **index)
    assert command[5:7] == ["gliner-bento:v1-cuda", "--tag"]
    assert command[command.index("--build-arg") + 1] == f"TORCH_INDEX={argument}"


@pytest.mark.parametrize(
    ("engines", "environment", "message"),
    [
        ((), {}, "make: an image needs docker or podman, and neither works here (see `docker info`, `podman info`)\n"),
        (("docker",), {"TORCH": "tpu"}, "make: TORCH=tpu: must be cpu or cuda\n"),
    ],
)
def test_what_cannot_be_built_ends_with_one_line(build, engines, environment, message):
    ended, command = build(*engines, **environment)
    assert (ended.returncode, ended.stderr, command) == (1, message, [])


def test_the_final_stage_installs_nothing_and_ends_as_the_user_of_bentomls_images():
    assert not re.search(r"\b(pip|apt|apt-get|uv)\b", FINAL)
    assert f"\nUSER {BENTO_UID_GID}:{BENTO_UID_GID}\n" in FINAL
    assert FINAL.index("\nUSER ") > FINAL.rindex("\nRUN ")
    assert f'ENTRYPOINT ["{BENTO_PATH}/env/docker/entrypoint.sh"]' in FINAL
    version = yaml.safe_load((PROJECT_ROOT / "bentofile.yaml").read_text(encoding="utf-8"))["docker"]["python_version"]
    base = rf"docker.io/library/python:{version}-slim(@sha256:[0-9a-f]{{64}})?"
    assert re.search(rf"^ARG BASE={base}$", DOCKERFILE, re.MULTILINE)


@pytest.mark.parametrize("variable", ["PORT", "BENTOML_PORT"])
@pytest.mark.parametrize("status", [200, 503])
def test_the_health_check_is_that_of_readiness(variable, status):
    instruction = re.search(r"^HEALTHCHECK .*?CMD (\[.*?\])$", FINAL.replace("\\\n", ""), re.MULTILINE)
    assert instruction
    _, *arguments = json.loads(instruction[1])
    with answering(lambda _, path, __: (status if path == "/readyz" else 404, None)) as url:
        environment = os.environ | {variable: url.rpartition(":")[2]}
        ended = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False)
    assert (ended.returncode == 0) == (status == 200)


def test_the_script_is_executable():
    assert os.access(BUILD, os.X_OK)
    assert Path(BUILD).read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")
