"""What the build of the image takes over from this machine."""

from __future__ import annotations

import os

from deploy.containers import pip_configuration
from deploy.containers.__main__ import main


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
    file, named = pip_configuration.write(tmp_path / "build", find_links="/further", trusted_host="index.test")
    lines = file.read_text().splitlines()
    assert lines[0] == "[global]"
    further = {f"find-links = {wheels} /missing /further", "trusted-host = index.test"}
    assert {index, "retries = 1", *further} <= set(lines)
    assert str(wheels) in named
    assert not {"/missing", "/further", str(given)} & set(named)


def test_without_podman_there_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["image", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "image: podman is not installed\n"
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    assert main(["image", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("image: mmdebstrap is not installed")
