"""What measuring a server refuses."""

from __future__ import annotations

import pytest
from doubles.answering_server import answering

from gliner_bento import cli


def test_an_unknown_workload_is_one_line(capsys, tmp_path):
    assert cli.main(["bench", "http://127.0.0.1:9", "--workload", "shrt", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("gliner-bento: bench: no workload shrt; there are short, mixed, ")


def test_a_url_without_a_server_is_one_line(capsys, tmp_path):
    assert cli.main(["bench", "http://127.0.0.1:9", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gliner-bento: bench: no gliner-bento server at http://127.0.0.1:9: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_server_without_a_right_answer_is_wrong(capsys, tmp_path):
    with answering(lambda method, *_: (200 if method == "GET" else 503, {"model": "demo"})) as url:
        load = ["--workload", "short", "--concurrency", "1", "--seconds", "0.1"]
        assert cli.main(["bench", url, "--out", str(tmp_path), *load]) == 1
    written = capsys.readouterr()
    assert " x 503" in written.out
    assert written.err == f"gliner-bento: bench: {url}: no response has status 200\n"


@pytest.mark.parametrize(
    ("flag", "values", "fault"),
    [
        ("--rate", ["-5", "0", "nan", "inf", "x"], "must be a positive number"),
        ("--seconds", ["-1", "0", "nan", "inf", "x"], "must be a positive number"),
        ("--concurrency", ["0", "1,0", "x", "1,", "1.5"], "must be positive integers, separated by commas"),
    ],
)
def test_a_load_that_cannot_be_is_one_line(capsys, flag, values, fault):
    for value in values:
        assert cli.main(["bench", "http://127.0.0.1:9", flag, value]) == 1
        assert capsys.readouterr().err == f"gliner-bento: argument {flag}: {fault}, not {value!r}\n"


def test_the_url_is_required(capsys):
    assert cli.main(["bench"]) == 1
    assert "URL" in capsys.readouterr().err
