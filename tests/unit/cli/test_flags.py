"""Parsing argv: flags, help, errors and exit codes."""

from __future__ import annotations

import fcntl
import io
import os
import re
import socket
import subprocess
import sys

import pytest

from gliner_bento import cli
from gliner_bento.cli import keys
from gliner_bento.cli.flags import parse
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.settings.gliner_serve import ALIASES
from gliner_bento.settings.names import flag_name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--max-batch-sise", "3"], "serve: unknown flag --max-batch-sise; did you mean --max-batch-size?"),
        (["serve", "--max-batch", "3"], "serve: unknown flag --max-batch; did you mean --max-batch-size?"),
        (["serve", "--device=gpu"], "device: String should match pattern"),
        (["settings", "--port", "3"], "settings: unknown flag --port\n"),
        (["keys", "new", "a", "--device", "cpu"], "keys: unknown flag --device"),
        (
            ["serve", "--polylora-base-adapter-id", "x"],
            "polylora_base_adapter_id: the id of the base model is __base__",
        ),
        (["serve", "--num-gpus-per-replica", "2"], "num_gpus_per_replica: a replica uses one GPU; set num_replicas"),
        (["serve", "--ray-address", "auto"], "--ray-address: needs --backend ray"),
        (["serve", "--max-labels", "0"], "max_labels: must be at least 1, or -1 for no limit"),
        (["serve", "--max-lora-rank=3", "--polylora-max-rank=4"], "--max-lora-rank and --polylora-max-rank name one"),
        (["serve", "--config", "gone.yaml"], "gone.yaml: No such file or directory"),
        (["serve", "--port", "99999"], "port 99999: must be between 1 and 65535; choose another one with --port"),
        (["serve", "--port", "-1"], "port -1: must be between 1 and 65535"),
        (["serve", "--port", "x"], "argument --port: invalid int value: 'x'"),
        ([], "the following arguments are required: COMMAND"),
        (["serve", "--model", "a=models/demo", "--model", "models/demo"], "model: leave it out, or give it a name"),
        (["extrct"], "unknown command extrct; did you mean extract?"),
        (["models", "lst"], "unknown action lst; did you mean list?"),
        (
            ["serve", "--port", "0", "--host", "0.0.0.0"],
            "address 0.0.0.0: others can reach it, and there are no API keys",
        ),
        (["serve", "--host", "192.0.2.1"], "port 3000 on 192.0.2.1: Cannot assign requested address"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_1(executed, capsys, arguments, message):
    assert cli.main(arguments) == 1
    written = capsys.readouterr()
    assert written.err.startswith("gliner-bento: ")
    assert message in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""
    assert executed == []


def test_a_port_that_is_taken_is_named(executed, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", "--port", str(port)]) == 1
    assert capsys.readouterr().err == (
        f"gliner-bento: port {port} on 127.0.0.1: Address already in use; choose another one with --port "
        "(PORT= of make serve)\n"
    )
    assert executed == []


def test_a_setting_that_is_true_or_false_has_a_negative_flag(capsys):
    assert cli.main(["settings", "--no-convert", "--no-enable-sequence-packing", "--enable-lora"]) == 0
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert shown["convert"] == ["false", "(--convert)"]
    assert shown["enable_sequence_packing"][0] == "false"
    assert shown["enable_lora"][0] == "true"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["models", "fetch", "a/b", "-o", "x", "--revison", "v1"],
            "models: unknown flag --revison; did you mean --revision",
        ),
        (["models", "fetch", "nobody/none", "-o", "{folder}"], "'nobody/none' is no folder and is not in the cache"),
        (["models", "fetch", "a/b/c", "-o", "{folder}"], "'a/b/c' is neither a folder nor a hub id (owner/name)"),
    ],
)
def test_a_model_that_cannot_be_fetched_is_one_line(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert cli.main([word.format(folder=tmp_path / "new") for word in arguments]) in (1, 2)
    written = capsys.readouterr()
    assert message in written.err
    assert written.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_help_lists_every_setting_in_groups_and_no_other_name_of_one(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["serve", "--help"])
    help_text = capsys.readouterr().out
    shown = set(re.findall(r"^  (--[\w-]+)", help_text, re.MULTILINE))
    assert {flag_name(name) for name in Settings.model_fields} <= shown
    assert shown.isdisjoint(map(flag_name, ALIASES))
    assert {"LoRA adapters:", "What is served, and how it runs:"} <= set(help_text.splitlines())


@pytest.mark.parametrize("command", ["extract", "bulk", "redact", "graph", "doctor", "settings"])
def test_a_setting_is_explained_once_in_the_help_of_serve(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    help_text = capsys.readouterr().out
    assert "see `gliner-bento serve --help`" in help_text.replace("\n  ", " ")
    assert not re.search(r"^  --dtype X", help_text, re.MULTILINE)
    required = {
        "bulk": ["a.txt", "-o", "b.jsonl"],
        "graph": ["a.txt", "-o", "b"],
        "redact": ["a.txt"],
        "eval": ["a.jsonl"],
    }
    assert parse([command, *required.get(command, []), "--dtype", "float32"])[2] == {"dtype": "float32"}


@pytest.mark.parametrize("arguments", [["settings"], ["serve", "--help"], ["extract", "--help"]])
def test_output_that_nobody_reads_to_its_end_is_no_error(arguments):
    command = [sys.executable, "-m", "gliner_bento.cli", *arguments]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, cwd=PROJECT_ROOT)
    finally:
        os.close(writing)
    assert ended.returncode in (0, 141)  # argparse ignores a failed write of a help
    assert ended.stderr == b""


def test_output_that_cannot_be_written_is_one_line_and_code_1(monkeypatch, capsys):
    for words in (["settings"], ["keys", "new", "a"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr(sys, "stdout", full)
            assert cli.main(words) == 1
        assert capsys.readouterr().err == "gliner-bento: standard output: No space left on device\n"


def test_output_that_is_written_in_part_is_an_error_also_without_pythons_buffer(monkeypatch, capsys):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)  # it takes a part of a long text, as a disk that is nearly full does
    with open(reading, "rb"), io.TextIOWrapper(open(writing, "wb", buffering=0), "utf-8", write_through=True) as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.main(["settings", "--json"]) == 1
        sys.stdout.flush()  # what is left goes to the null device
    assert capsys.readouterr().err.startswith("gliner-bento: standard output: ")


def test_closed_standard_streams_are_the_null_device(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert cli.main(["settings"]) == 0
    assert cli.main(["settings", "--port", "3"]) == 1
    with sys.stdin, sys.stdout, sys.stderr:
        assert sys.stdin.buffer.read() == b""


def test_an_interrupted_command_is_one_line_and_code_130(monkeypatch, capsys):
    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(keys, "new_key", interrupt)
    assert cli.main(["keys", "new", "a"]) == 130
    assert capsys.readouterr().err == "gliner-bento: interrupted\n"


def test_the_command_line_runs_without_loading_torch_or_bentoml():
    code = "import sys, gliner_bento.cli as cli; cli.main(['settings']); print({'torch', 'bentoml'} & {*sys.modules})"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT, timeout=240
    )
    assert ended.stdout.splitlines()[-1] == "set()"


def test_the_package_runs_as_a_module():
    ended = subprocess.run(
        [sys.executable, "-m", "gliner_bento.cli", "serve", "--max-batch", "3"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT_ROOT,
        timeout=240,
    )
    assert ended.returncode == 1
    assert ended.stderr == "gliner-bento: serve: unknown flag --max-batch; did you mean --max-batch-size?\n"


def test_named_models_are_flags_that_are_repeated():
    one, two = "a=models/demo", "b=owner/name"
    assert parse(["serve", "--model", one, "--model", two])[2] == {"models": f"{one},{two}"}
    assert parse(["serve", "--models", one, "--model", two])[2] == {"models": f"{one},{two}"}
    assert parse(["serve", "--model", "./a=b"])[2] == {"model": "./a=b"}
