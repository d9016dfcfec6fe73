"""The command line, as a function and as a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gliner_bento import cli
from gliner_bento.configuration import PROJECT_ROOT
from gliner_bento.settings import ALIASES, Settings


@pytest.fixture
def executed(monkeypatch):
    """What `serve` would become: program, arguments and environment, instead of this process."""
    calls = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    return calls


def test_serve_becomes_bentoml_serve_with_the_settings_in_its_environment(executed, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gliner_config.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLINER_MAX_LABELS", "5")
    assert cli.main(["serve", "--port", "4321", "--model", "mine", "--dtype=bf16", "--max-batch-size", "8"]) == 0
    [(program, command, environment)] = executed
    assert program == sys.executable
    assert command[1:5] == ["-m", "bentoml", "serve", "service:GLiNERService"]
    assert command[5:] == ["--working-dir", str(PROJECT_ROOT), "--port", "4321", "--host", "127.0.0.1"]
    given = {name: value for name, value in environment.items() if name.startswith("GLINER_")}
    assert given == {
        "GLINER_DTYPE": "bfloat16",
        "GLINER_MAX_BATCH_SIZE": "8",
        "GLINER_MAX_LABELS": "5",
        "GLINER_MODEL": str(tmp_path / "mine"),
    }


def test_a_worker_arrives_at_the_same_settings_in_another_folder(executed, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gliner_config.json").touch()
    (tmp_path / "own.yaml").write_text("gliner: {model: mine, max_text_chars: 77}")
    monkeypatch.chdir(tmp_path)
    flags = {"config": "own.yaml", "default_threshold": "0.25"}
    expected = Settings.load(flags)
    assert cli.main(["serve", "--config", "own.yaml", "--default-threshold", "0.25"]) == 0
    for name, value in executed[0][2].items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert Settings.load() == expected
    assert expected.max_text_chars == 77


def test_a_worker_is_told_of_folders_and_of_settings_under_their_own_names(executed, tmp_path, monkeypatch):
    (tmp_path / "tenants").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLINER_ADAPTER_ROOT", "tenants")
    assert cli.main(["serve", "--enable-polylora", "--polylora-max-rank", "3"]) == 0
    environment = executed[0][2]
    assert environment["GLINER_ADAPTER_ROOT"] == str(tmp_path / "tenants")
    assert (environment["GLINER_ENABLE_LORA"], environment["GLINER_MAX_LORA_RANK"]) == ("True", "3")
    assert not [name for name in environment if "POLYLORA" in name]


def test_a_worker_sees_no_alias_beside_what_wins_over_it(executed, tmp_path, monkeypatch):
    monkeypatch.setenv("GLINER_POLYLORA_MAX_RANK", "4")
    monkeypatch.setenv("GLINER_POLYLORA_DISK_CACHE_DIR", "cache")
    monkeypatch.setenv("GLINER_ENABLE_POLYLORA", "1")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["serve", "--max-lora-rank", "3"]) == 0
    expected = Settings.load({"max_lora_rank": "3"})
    environment = executed[0][2]
    for name in [name for name in os.environ if name.startswith("GLINER_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert Settings.load() == expected
    assert (expected.max_lora_rank, expected.enable_lora, expected.disk_cache_dir) == (3, True, tmp_path / "cache")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--max-batch-sise", "3"], "serve: unknown flag --max-batch-sise; did you mean --max-batch-size?"),
        (["serve", "--max-batch", "3"], "serve: unknown flag --max-batch; did you mean --max-batch-size?"),
        (["serve", "--device=gpu"], "device: String should match pattern"),
        (["settings", "--port", "3"], "settings: unknown flag --port"),
        (["docs", "--device", "cpu"], "docs: unknown flag --device"),
        (["serve", "--polylora-use-triton-kernels"], "serve: unknown flag --polylora-use-triton-kernels"),
        (["serve", "--max-lora-rank=3", "--polylora-max-rank=4"], "--max-lora-rank and --polylora-max-rank are one"),
        (["serve", "--config", "gone.yaml"], "gone.yaml: No such file or directory"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(executed, capsys, arguments, message):
    assert cli.main(arguments) == 2
    written = capsys.readouterr()
    assert written.err.startswith("gliner-bento: ")
    assert message in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""
    assert executed == []


@pytest.mark.parametrize("arguments", [[], ["sevre"], ["serve", "--port", "x"]])
def test_a_missing_command_or_port_ends_with_code_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "gliner-bento" in capsys.readouterr().err


def test_settings_prints_every_value_and_its_source(capsys, monkeypatch, tmp_path):
    (tmp_path / "own.yaml").write_text("gliner: {max_labels: 9}")
    monkeypatch.setenv("GLINER_DTYPE", "fp16")
    assert cli.main(["settings", "--config", str(tmp_path / "own.yaml"), "--queue-capacity", "6"]) == 0
    printed = {line.split()[0]: line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()}
    assert set(printed) == set(Settings.model_fields)
    assert printed["queue_capacity"] == "6  (--queue-capacity)"
    assert printed["dtype"] == "float16  (GLINER_DTYPE)"
    assert printed["max_labels"] == f"9  ({tmp_path / 'own.yaml'})"
    assert printed["max_batch_size"] == "32  (default)"
    assert cli.main(["settings", "--polylora-max-rank", "6"]) == 0
    assert "6  (--polylora-max-rank)" in capsys.readouterr().out


def test_help_tells_every_flag(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["serve", "--help"])
    told = capsys.readouterr().out
    for name in [*Settings.model_fields, *ALIASES]:
        assert "--" + name.replace("_", "-") in told


def test_the_settings_page_is_written_and_checked(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cli, "PROJECT_ROOT", tmp_path)
    page = tmp_path / "settings.md"
    assert cli.write_settings_page(check=True, path=page) == 1
    assert cli.write_settings_page(check=False, path=page) == 0
    assert cli.write_settings_page(check=True, path=page) == 0
    page.write_text(page.read_text() + "edited\n")
    assert cli.write_settings_page(check=True, path=page) == 1
    assert "settings.md is stale: run `make docs`" in capsys.readouterr().err


def test_the_settings_page_has_a_row_for_every_setting():
    rows = [line for line in cli.settings_page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(Settings.model_fields)
    assert " gliner.serve's name: `polylora_max_rank`. |\n" in cli.settings_page()
    assert "| `default_threshold` | `0.5` | at least 0, at most 1 |" in cli.settings_page()


def test_the_module_runs_as_a_command_without_loading_torch_or_bentoml():
    code = "import sys, gliner_bento.cli as cli; cli.main(['settings']); print({'torch', 'bentoml'} & {*sys.modules})"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT, timeout=60
    )
    assert ended.stdout.splitlines()[-1] == "set()"
