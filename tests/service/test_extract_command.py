"""`gliner-bento extract` with the bundled model in this process."""

from __future__ import annotations

import io
import json
import os
import sys
from unittest.mock import Mock

import pytest
from doubles.answering_server import answering

from gliner_bento import cli
from gliner_bento.cli.backend import one_off
from gliner_bento.engine import engine
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT

TEXT = "Bill Gates founded Microsoft in 1975."


def test_a_text_and_a_file_are_extracted_without_a_server(capsys, tmp_path):
    assert cli.main(["extract", TEXT, "--labels", "person,organization", "--relations", "founded"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "Bill Gates [person] founded Microsoft [organization] in 1975."
    assert shown.err == "", "only a terminal reads that a model loads"
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "labels.yaml").write_text("person: a human being\n")
    assert cli.main(["extract", str(tmp_path / "a.txt"), "--labels", f"@{tmp_path}/labels.yaml", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(one["text"], one["label"]) for one in answer["entities"]] == [("Bill Gates", "person")]
    assert answer["model"] == "demo"


def test_one_line_says_on_a_terminal_that_a_model_loads(monkeypatch, capsys):
    terminal, theirs = os.openpty()
    with os.fdopen(terminal, "rb", 0) as shown, os.fdopen(theirs, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        assert cli.main(["extract", TEXT, "--labels", "person"]) == 0
        stderr.write("the end\n")
        stderr.flush()
        assert shown.readline() == f"gliner-bento: loading {PROJECT_ROOT}/models/demo ...\r\n".encode()
        assert shown.readline() == b"the end\r\n"
    assert capsys.readouterr().out.startswith("Bill Gates [person]")


def test_one_text_is_answered_without_a_self_test(monkeypatch):
    given = Settings.load({"self_test": "true"})
    assert (one_off(given).self_test, one_off(given).batch_invariant) == (True, False)
    assert one_off(Settings.load({})).self_test is False
    monkeypatch.setattr(engine, "self_test", fail := Mock(side_effect=AssertionError))
    assert cli.main(["extract", TEXT, "--labels", "person"]) == 0
    fail.assert_not_called()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["extract", TEXT], "--labels (names, separated by commas), --classify or --structures is required"),
        (["extract", TEXT, "--labels", "@gone.yaml"], "--labels: gone.yaml: No such file or directory"),
        (["extract", TEXT, "--labels", "a", "--url", "http://127.0.0.1:9"], "http://127.0.0.1:9: "),
        (
            ["extract", 20 * TEXT, "--labels", "a", "--url", "http://127.0.0.1:9"],
            "http://127.0.0.1:9: ",
        ),  # no file name
        (["extract", TEXT, "--labels", "a", "--url", "localhost"], "localhost: "),
        (["extract", TEXT, "--labels", "a", "--url", "http://a", "--url", "http://b"], "--url: give only one"),
        (["extract", TEXT, "--labels", "a", "--url", "http://a", "--device", "cpu"], "--device: is for a model in"),
        (["extract", TEXT, "--labels", "a", "--thresold", "1"], "unknown flag --thresold; did you mean --threshold"),
        (["extract", TEXT, "--labels", "a", "--model", "nobody/none"], "'nobody/none' is no folder"),
    ],
)
def test_what_cannot_work_is_one_line_and_code_1(capsys, tmp_path, arguments, message):
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    assert cli.main([argument.format(folder=tmp_path) for argument in arguments]) == 1
    written = capsys.readouterr()
    assert message in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("latin.txt", "latin.txt: not UTF-8: byte 3"),
        ("nofile.txt", "nofile.txt: No such file or directory"),
        ("folder/nofile", "folder/nofile: No such file or directory"),
        ("./no file", "./no file: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_code_2(capsys, tmp_path, monkeypatch, name, message):
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["extract", name, "--labels", "a"]) == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"gliner-bento: extract: {message}")
    assert written.err.count("\n") == 1


def test_a_text_comes_from_a_pipe_and_a_url_needs_no_scheme(monkeypatch):
    bodies = []

    def answer(method, path, body):
        bodies.append(json.loads(body))
        return 404, None

    with answering(answer) as served:
        url = served.replace("http://127.0.0.1", "localhost")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
        cli.main(["extract", "--labels", "person", "--url", url])
        cli.main(["extract", "Ada Lovelace, e.g. in a/b.", "--labels", "person", "--url", url])
    assert [body["text"] for body in bodies] == [TEXT, "Ada Lovelace, e.g. in a/b."]
