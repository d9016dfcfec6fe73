"""What measuring a server refuses."""

from __future__ import annotations

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


def test_the_url_is_required(capsys):
    assert cli.main(["bench"]) == 1
    assert "URL" in capsys.readouterr().err
