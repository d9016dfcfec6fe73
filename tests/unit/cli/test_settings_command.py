"""`gliner-bento settings`."""

from __future__ import annotations

import json

import pytest

from gliner_bento import cli
from gliner_bento.settings import Settings
from gliner_bento.storage.api_keys import hash_of


def test_settings_prints_every_value_and_its_origin(capsys, monkeypatch, tmp_path):
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


def test_the_token_is_never_shown(capsys, monkeypatch):
    assert cli.main(["settings", "--token", "hf_secret"]) == 0
    assert "**********  (--token)" in capsys.readouterr().out
    monkeypatch.setenv("GLINER_TOKEN", "hf_secret")
    assert cli.main(["settings", "--device", "gpu"]) == 1
    printed = capsys.readouterr()
    assert "hf_secret" not in printed.out + printed.err + repr(Settings.load({"token": "hf_secret"}))


def test_a_token_in_the_file_that_is_no_text_is_not_shown(capsys, tmp_path):
    (tmp_path / "own.yaml").write_text("gliner: {token: 12345}")
    assert cli.main(["settings", "--config", str(tmp_path / "own.yaml")]) == 1
    assert "token: Input should be a valid string (got a secret" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["allow_list", "deny_list"])
def test_what_lists_have_is_not_shown_in_errors(capsys, monkeypatch, tmp_path, name):
    entries = '["Ada Ng", {"pattern": "(oops"}]'
    (tmp_path / "own.yaml").write_text(f"gliner: {{{name}: {entries}}}")
    assert cli.main(["settings", "--config", str(tmp_path / "own.yaml")]) == 1
    monkeypatch.setenv(f"GLINER_{name.upper()}", entries)
    assert cli.main(["settings"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (got ")[2] for line in lines] == [
        "a secret from the configuration file)",
        f"a secret from GLINER_{name.upper()})",
    ]
    assert "Ada" not in "".join(lines)


@pytest.mark.parametrize("name", ["allow_list", "deny_list", "api_keys"])
def test_what_lists_and_keys_have_is_not_printed(capsys, monkeypatch, tmp_path, name):
    key = {"name": "a", "sha256": hash_of("b"), "scopes": ["extract"], "deny_list": ["Ada Ng"]}
    content = json.dumps([key] if name == "api_keys" else ["Ada Ng"])
    (tmp_path / "list.json").write_text(content)
    monkeypatch.setenv(f"GLINER_{name.upper()}", content)
    assert cli.main(["settings"]) == cli.main(["settings", "--json"]) == 0
    printed = capsys.readouterr().out + repr(Settings.load())
    assert "Ada" not in printed
    assert hash_of("b") not in printed
    assert f"**********  (GLINER_{name.upper()})" in printed
    monkeypatch.setenv(f"GLINER_{name.upper()}", str(tmp_path / "list.json"))
    assert cli.main(["settings"]) == 0
    assert f"{tmp_path}/list.json  (GLINER_{name.upper()})" in capsys.readouterr().out


def test_settings_and_keys_are_printed_as_json(capsys):
    assert cli.main(["settings", "--json", "--max-labels", "7"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["max_labels"] == {"value": "7", "origin": "--max-labels"}
    assert shown["revision"] == {"value": None, "origin": "default"}
    assert shown.keys() == Settings.model_fields.keys()
    assert cli.main(["keys", "new", "a", "--json"]) == 0
    written = capsys.readouterr()
    made = json.loads(written.out)
    assert made["entry"] == {"name": "a", "sha256": hash_of(made["key"]), "scopes": ["extract"]}
    assert written.err == ""
