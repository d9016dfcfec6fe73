"""`bench`, briefly, as people run it."""

from __future__ import annotations

import json

import pytest

from gliner_bento import cli


def test_a_comparison_measures_its_rows_and_writes_a_report(tmp_path, capsys):
    assert cli.main(["bench", "--quick", "--rows", "stages,settings", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    measured = {row["name"]: row for row in data["rows"]}
    assert set(measured) == {"one text, one thread, float32", "one text, one thread, bfloat16", "defaults",
                             "inference_lanes=1"}  # fmt: skip
    assert all(row["ours"] > 0 for row in data["rows"])
    assert all(set(point["statuses"]) == {"200"} for point in data["points"])
    page = capsys.readouterr().out
    assert page == (tmp_path / "report.md").read_text()
    assert cli.main(["bench", "--report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == page


def test_adapters_answer_as_merged_ones_while_they_come_and_go(tmp_path):
    assert cli.main(["bench", "--quick", "--rows", "adapters_exact,adapters_tiers", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    right = [row for row in data["rows"] if row["section"] == "adapters_exact"]
    assert [(row["name"], row["ours"], row["met"]) for row in right] == [
        ("right answers, 4 adapters of queries and values, fp32", 12.0, True),
        ("right answers, 4 adapters of all linear layers, fp32", 12.0, True),
        ("right answers, 24 adapters over 4 slots, fp32", 10.0, True),
    ]
    cold, again, beside, changing = (row for row in data["rows"] if row["section"] == "adapters_tiers")
    assert cold["ours"] == again["ours"] > 0 < again["theirs"]
    assert beside["ratio"] > 0
    assert "40 requests" in changing["note"]
    assert " 0 errors" in changing["note"]
    assert all(set(point["statuses"]) == {"200"} for point in data["points"])
    assert all(point["agreement"]["own"] > 0.75 for point in data["points"])


def test_long_texts_are_read_whole_and_many_labels_in_groups(tmp_path):
    assert cli.main(["bench", "--quick", "--rows", "long_texts", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    assert [row["unit"] for row in data["rows"]] == ["words/s", "words/s", "MB", "ms", "ms", "entities", "F1"]
    assert all(row["ratio"] is not None for row in data["rows"])
    assert all(set(point["statuses"]) == {"200"} for point in data["points"])
    told = data["extra"]["long_texts"]
    assert told["document"]["windows"] > 3000 / 256
    assert f"its {told['document']['windows']} windows" in data["rows"][1]["note"]
    assert 3000 < told["document"]["words_in_windows"] < 3000 * 1.2
    assert "250 labels" in data["rows"][4]["note"]
    assert data["rows"][5]["ratio"] > 0.5
    assert data["rows"][6]["ratio"] > 0.8


@pytest.mark.parametrize("load", [["--concurrency", "1,4"], ["--rate", "20"]])
def test_a_running_server_is_measured(server, load, tmp_path, capsys):
    command = ["bench", server, "--workload", "short", "--seconds", "0.5", "--out", str(tmp_path), *load]
    assert cli.main(command) == 0
    data = json.loads((tmp_path / "server.json").read_text())
    assert data["server"]["dtype"] == "float32"
    assert [point["concurrency"] for point in data["points"]] == ([1, 4] if "1,4" in load else [0])
    for point in data["points"]:
        assert set(point["statuses"]) == {"200"}
        assert (point["agreement"]["wrong"], point["unanswered"]) == (0, 0)
    assert "short" in capsys.readouterr().out


def test_a_row_that_there_is_not_is_one_line(capsys):
    assert cli.main(["bench", "--rows", "bf61"]) == 2
    assert "no row bf61" in capsys.readouterr().err
