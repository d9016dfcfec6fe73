"""`gliner-bento serve`: what it executes, and the environment of BentoML's workers."""

from __future__ import annotations

import os
import sys

import pytest
import yaml

from gliner_bento import cli
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT


def test_serve_becomes_bentoml_serve_with_the_settings_in_its_environment(executed, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gliner_config.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLINER_MAX_LABELS", "5")
    assert cli.main(["serve", "--port", "0", "--model", "mine", "--dtype=bf16", "--max-batch-size", "8"]) == 0
    [(program, command, environment)] = executed
    assert program == sys.executable
    assert command[1:5] == ["-m", "bentoml", "serve", "service:GLiNERService"]
    assert command[5:] == ["--working-dir", str(PROJECT_ROOT), "--port", "0", "--host", "127.0.0.1"]
    given = {name: value for name, value in environment.items() if name.startswith("GLINER_")}
    assert given == {
        "GLINER_DTYPE": "bfloat16",
        "GLINER_MAX_BATCH_SIZE": "8",
        "GLINER_MAX_LABELS": "5",
        "GLINER_MODEL": str(tmp_path / "mine"),
    }


@pytest.mark.parametrize(("given", "passed"), [(None, "True"), ("False", "False")])
def test_bentoml_does_not_report_its_use_unless_the_operator_allows_it(executed, monkeypatch, given, passed):
    monkeypatch.delenv("BENTOML_DO_NOT_TRACK")
    if given:
        monkeypatch.setenv("BENTOML_DO_NOT_TRACK", given)
    assert cli.main(["serve", "--port", "0"]) == 0
    assert executed[0][2]["BENTOML_DO_NOT_TRACK"] == passed


def test_an_address_that_others_reach_needs_keys_or_the_operators_word(executed):
    other = ["serve", "--port", "0", "--host", "0.0.0.0"]
    assert cli.main([*other, "--api-keys", "[]"]) == 0
    assert cli.main([*other, "--allow-anonymous"]) == 0
    assert [environment.get("GLINER_ALLOW_ANONYMOUS") for _, _, environment in executed] == [None, "true"]
    assert executed[0][2]["GLINER_API_KEYS"] == "[]"
    for host in ("localhost", "127.0.0.1", "::1"):
        assert cli.main(["serve", "--port", "0", "--host", host]) == 0


def test_a_worker_loads_the_same_settings_in_another_folder(executed, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gliner_config.json").touch()
    (tmp_path / "own.yaml").write_text("gliner: {model: mine, models: {a: mine}, max_text_chars: 77}")
    monkeypatch.chdir(tmp_path)
    flags = {"config": "own.yaml", "default_threshold": "0.25"}
    expected = Settings.load(flags)
    assert cli.main(["serve", "--port", "0", "--config", "own.yaml", "--default-threshold", "0.25"]) == 0
    for name, value in executed[0][2].items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert Settings.load() == expected
    assert expected.max_text_chars == 77


def test_a_worker_gets_absolute_folders_and_settings_under_their_own_names(executed, tmp_path, monkeypatch):
    (tmp_path / "tenants").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLINER_ADAPTER_ROOT", "tenants")
    assert cli.main(["serve", "--port", "0", "--enable-polylora", "--polylora-max-rank", "3"]) == 0
    environment = executed[0][2]
    assert environment["GLINER_ADAPTER_ROOT"] == str(tmp_path / "tenants")
    assert (environment["GLINER_ENABLE_LORA"], environment["GLINER_MAX_LORA_RANK"]) == ("true", "3")
    assert not [name for name in environment if "POLYLORA" in name]


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_worker_gets_absolute_paths_of_every_file(executed, tmp_path, monkeypatch, source):
    files = {
        "allow_list": "allow.yaml",
        "api_keys": "keys.yaml",
        "deny_list": "deny.yaml",
        "redaction_key": "./some.key",
    }
    for file in files.values():
        (tmp_path / file).write_text("[]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"gliner": files if source == "file" else {}}))
    for name, file in files.items() if source == "environment" else ():
        monkeypatch.setenv(f"GLINER_{name.upper()}", file)
    assert cli.main(["serve", "--port", "0", "--config", "own.yaml"]) == 0
    passed = {name: executed[0][2].get(f"GLINER_{name.upper()}") for name in files}
    assert passed == {name: str(tmp_path / file) for name, file in files.items()}


def test_lists_in_the_file_are_not_in_a_workers_environment(executed, tmp_path):
    (tmp_path / "own.yaml").write_text("gliner: {deny_list: [Ada Ng]}")
    assert cli.main(["serve", "--port", "0", "--config", str(tmp_path / "own.yaml")]) == 0
    assert "GLINER_DENY_LIST" not in executed[0][2]


def test_a_worker_sees_no_alias_that_another_value_overrides(executed, tmp_path, monkeypatch):
    monkeypatch.setenv("GLINER_POLYLORA_MAX_RANK", "4")
    monkeypatch.setenv("GLINER_POLYLORA_DISK_CACHE_DIR", "cache")
    monkeypatch.setenv("GLINER_ENABLE_POLYLORA", "1")
    monkeypatch.setenv("GLINER_DISABLE_COMPILE", "true")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["serve", "--port", "0", "--max-lora-rank", "3", "--enable-compilation"]) == 0
    expected = Settings.load({"max_lora_rank": "3", "enable_compilation": "true"})
    environment = executed[0][2]
    for name in [name for name in os.environ if name.startswith("GLINER_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert Settings.load() == expected
    assert (expected.max_lora_rank, expected.enable_lora, expected.disk_cache_dir) == (3, True, tmp_path / "cache")


def test_a_worker_gets_the_token(executed):
    assert cli.main(["serve", "--token", "hf_secret"]) == 0
    [(_, command, environment)] = executed
    assert environment["GLINER_TOKEN"] == "hf_secret"
    assert "hf_secret" not in " ".join(command)
