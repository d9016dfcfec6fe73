"""The benchmark in its quick form, and `gliner-bento bench URL`."""

from __future__ import annotations

import json

import pytest

from benchmark.__main__ import main
from gliner_bento import cli


@pytest.mark.slow
def test_a_comparison_measures_its_rows_and_writes_a_report(tmp_path, capsys):
    assert main(["--quick", "--rows", "bf16,served", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    assert {row["section"] for row in data["rows"]} == {"bf16", "served"}
    assert all(row["ours"] > 0 for row in data["rows"])
    assert all(set(point["statuses"]) == {"200"} for point in data["points"])
    page = capsys.readouterr().out
    assert page == (tmp_path / "report.md").read_text()
    assert main(["--report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == page


@pytest.mark.slow
def test_the_cpu_time_around_the_model_is_measured(tmp_path):
    assert main(["--quick", "--rows", "overhead", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    names = [row["name"].partition(",")[0] for row in data["rows"]]
    assert names[:8] == ["prepare", "collate", "collate", "decode", "schedule", "gateway", "hop", "hop"]
    assert names[8:] == ["redact", "redact", "guardrail", "restore", "restore"]
    assert all(row["ours"] > 0 and row["unit"].startswith("us of CPU per ") for row in data["rows"])
    assert data["rows"][0]["theirs"] > 0
    assert data["rows"][5]["note"] == "4 entities per answer"


@pytest.mark.slow
def test_adapters_predict_as_merged_ones_while_others_load_and_are_evicted(tmp_path):
    assert main(["--quick", "--rows", "adapters_exact,adapters_tiers", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    exact = [row for row in data["rows"] if row["section"] == "adapters_exact"]
    assert [(row["name"], row["ours"], row["met"]) for row in exact] == [
        ("right responses, 4 adapters of queries and values, fp32", 12.0, True),
        ("right responses, 4 adapters of all linear layers, fp32", 12.0, True),
        ("right responses, 24 adapters over 4 slots, fp32", 10.0, True),
    ]
    cold, repeated, meanwhile, evicting = (row for row in data["rows"] if row["section"] == "adapters_tiers")
    assert cold["ours"] == repeated["ours"] > 0 < repeated["theirs"]
    assert meanwhile["ratio"] > 0
    assert "40 requests" in evicting["note"]
    assert " 0 errors" in evicting["note"]
    assert all(set(point["statuses"]) == {"200"} for point in data["points"])
    assert all(point["agreement"]["own"] > 0.75 for point in data["points"])


@pytest.mark.slow
def test_long_texts_are_processed_whole_and_many_labels_in_groups(tmp_path):
    assert main(["--quick", "--rows", "long_texts", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    assert [row["unit"] for row in data["rows"]] == ["words/s", "words/s", "MB", "ms", "ms", "entities", "F1"]
    assert all(row["ratio"] is not None for row in data["rows"])
    assert all(set(point["statuses"]) == {"200"} for point in data["points"])
    document = data["extra"]["long_texts"]["document"]
    assert document["windows"] > 3000 / 256
    assert f"its {document['windows']} windows" in data["rows"][1]["note"]
    assert 3000 < document["words_in_windows"] < 3000 * 1.2
    assert "250 labels" in data["rows"][4]["note"]
    assert data["rows"][5]["ratio"] > 0.5
    assert data["rows"][6]["ratio"] > 0.8


@pytest.mark.parametrize("load", [["--concurrency", "1,4"], ["--rate", "20"]])
def test_a_running_server_is_measured(server, load, tmp_path, capsys):
    command = ["bench", server, "--workload", "short", "--seconds", "0.5", "--out", str(tmp_path), *load]
    assert cli.main([*command, "--json"]) == 0
    data = json.loads((tmp_path / "server.json").read_text())
    assert json.loads(capsys.readouterr().out) == data
    assert data["server"]["dtype"] == "float32"
    assert [point["concurrency"] for point in data["points"]] == ([1, 4] if "1,4" in load else [0])
    for point in data["points"]:
        assert set(point["statuses"]) == {"200"}
        assert (point["agreement"]["wrong"], point["unanswered"]) == (0, 0)


def test_an_unknown_row_is_one_line(capsys):
    assert main(["--rows", "bf61"]) == 2
    assert "no row bf61" in capsys.readouterr().err
