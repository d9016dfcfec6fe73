"""What commands print if the server is not there or refuses: one line, in terms of their own flags."""

from __future__ import annotations

import pytest
from doubles.answering_server import answering

from gliner_bento import cli

COMMANDS = pytest.mark.parametrize(
    "words",
    [
        ["extract", "Ada lived here.", "--labels", "person"],
        ["bulk", "{folder}/a.txt", "-o", "{folder}/b.jsonl", "--labels", "person"],
        ["adapters", "list"],
        ["models", "list"],
    ],
    ids=lambda words: words[0],
)


def stderr_of(words: list[str], tmp_path, capsys) -> str:
    (tmp_path / "a.txt").write_text("Ada lived here.", encoding="utf-8")
    assert cli.main([word.format(folder=tmp_path) for word in words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


@COMMANDS
@pytest.mark.parametrize("url", ["http://host:port", "ftp://host"])
def test_a_url_that_is_none_is_named(words, url, tmp_path, capsys):
    assert f"url: '{url}'" in stderr_of([*words, "--url", url], tmp_path, capsys)


@pytest.mark.parametrize("words", [["extract", "Ada.", "--labels", "person"], ["adapters", "list"], ["models", "list"]])
def test_a_server_that_is_not_there_is_asked_for(words, url_of_nobody, tmp_path, capsys):
    line = stderr_of([*words, "--url", url_of_nobody], tmp_path, capsys)
    assert "is a server running there?" in line


@COMMANDS
def test_a_missing_key_names_the_flag(words, tmp_path, capsys):
    refusal = {"error": {"code": "unauthorized", "message": "send Authorization: Bearer KEY"}}
    with answering(lambda *_: (401, refusal)) as url:
        line = stderr_of([*words, "--url", url], tmp_path, capsys)
    assert "--api-key KEY" in line
    assert "Bearer" not in line


def test_an_adapter_without_lora_names_the_flag(tmp_path, capsys):
    line = stderr_of(["extract", "Ada.", "--labels", "person", "--adapter-id", "a"], tmp_path, capsys)
    assert line.endswith("--adapter-id: add --enable-lora")
