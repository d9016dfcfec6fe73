"""What the build of the image takes over from this machine."""

from __future__ import annotations

import os

from deploy.containers.__main__ import main
from deploy.containers.podman import _pip_configuration


def test_pip_is_configured_in_the_build_as_it_is_here(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    given = tmp_path / "pip.conf"
    index, wheels = "index-url = https://mirror.example/simple", tmp_path / "wheels"
    given.write_text(f"[global]\nretries = 7\n{index}\nfind-links = {wheels} /missing\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(given))
    monkeypatch.setenv("PIP_RETRIES", "1")
    (tmp_path / "build").mkdir()
    file, volumes = _pip_configuration(tmp_path / "build")
    lines = file.read_text().splitlines()
    assert lines[0] == "[global]"
    assert {index, "retries = 1"} <= set(lines)
    assert f"{wheels}:{wheels}:ro" in volumes
    assert not [volume for volume in volumes if volume.startswith(("/missing", str(given)))]


def test_without_podman_there_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["image", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "image: podman is not installed\n"
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    assert main(["image", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("image: mmdebstrap is not installed")
