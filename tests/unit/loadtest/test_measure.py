"""What measuring a server refuses."""

from __future__ import annotations

from gliner_bento import cli
from gliner_bento.loadtest.table import loads_table


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


def test_the_table_shows_load_statuses_and_agreement():
    about = {
        "server": "demo",
        "section": "short",
        "requests_per_s": 2.0,
        "p50_ms": 10.0,
        "p95_ms": 30.0,
        "p99_ms": None,
    }
    closed = about | {"concurrency": 8, "rate": 0.0, "statuses": {"200": 3}, "unanswered": 0, "agreement": {"wrong": 1}}
    paced = about | {"concurrency": 0, "rate": 5.0, "statuses": {"200": 1, "503": 2}, "unanswered": 4}
    first, second = loads_table([closed, paced]).splitlines()[2:]
    assert first == "| demo | short | concurrency 8 | 2.000 | 10.0 | 30.0 | - | 3 x 200 | 1 | - | - |"
    assert second == (
        "| demo | short | 5.0 requests/s | 2.000 | 10.0 | 30.0 | - | 1 x 200, 2 x 503, 4 unanswered | - | - | - |"
    )
