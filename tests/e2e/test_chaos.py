"""`make chaos` in a short form: faults from which a server recovers at once, and its end under load."""

from __future__ import annotations

from pathlib import Path

from reliability.chaos import chaos

QUICK = {"warmup_iterations": 0, "max_queue_wait_s": 60, "hang_timeout_s": 60}  # a slow machine is no failure


def test_faults_cost_no_wrong_answer_and_no_request_hangs(tmp_path: Path) -> None:
    names = ["bad-clients", "out-of-memory", "full-disk", "sigterm"]
    measured = chaos(tmp_path / "log", faults=names, seconds=0.5, clients=4, settings=QUICK)
    reports = measured.facts["faults"]
    assert measured.met, measured.page()
    assert list(reports) == names
    assert all(report["right"] for report in reports.values())
    assert not reports["bad-clients"]["errors"]
    assert reports["full-disk"]["said"] == "5 uploads got 507 storage_full"
    assert reports["sigterm"]["lasted_s"] <= 20
