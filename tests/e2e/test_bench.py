"""`make bench`, briefly: a server is started, measured, and told apart by its settings."""

from __future__ import annotations

import json

from gliner_bento.benchmark.report import bench, table


def test_a_run_writes_what_was_measured_and_on_what(tmp_path, monkeypatch):
    monkeypatch.setenv("GLINER_DTYPE", "float32")
    path = bench(None, tmp_path, run_s=1.0)
    data = json.loads(path.read_text())
    assert (data["server"]["dtype"], data["settings"]["GLINER_DTYPE"]) == ("float32", "float32")
    assert [run["concurrency"] for run in data["runs"]] == [1, 8, 32]
    assert all(set(run["statuses"]) == {"200"} and run["wrong"] == 0 for run in data["runs"])
    assert data["machine"]["cores"]
    assert str(path) in table(path)
