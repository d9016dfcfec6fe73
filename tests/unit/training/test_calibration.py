"""The fit of calibrations, and the report of it."""

from __future__ import annotations

import pytest

from training.calibration import fit, reliability


def test_overconfident_scores_are_corrected() -> None:
    """Of the answers with score .9, six of ten are right."""
    correction = fit([(0.9, number < 6) for number in range(10)] + [(0.1, number < 4) for number in range(10)], miss=1)
    assert correction.scale == pytest.approx(0.1845, abs=1e-3)  # logit(.6) / logit(.9)
    assert correction.shift == pytest.approx(0, abs=1e-3)


def test_a_missed_answer_costs_more_than_a_wrong_one() -> None:
    outcomes = [(0.5, True), (0.5, False)]
    assert fit(outcomes, miss=2).shift > fit(outcomes, miss=1).shift


def test_the_report_counts_every_score_once() -> None:
    table = reliability([(0.05, False), (0.1, True), (0.19, False), (1.0, True)], [(0.95, True), (0.95, False)])
    rows = {row.split(" |")[0]: row.split(" | ")[1:] for row in table.splitlines()[2:]}
    assert rows["| 0.0 to 0.1"] == ["1", "0.00", "0", "0.00 |"]
    assert rows["| 0.1 to 0.2"] == ["2", "0.50", "0", "0.00 |"]
    assert rows["| 0.9 to 1.0"] == ["1", "1.00", "2", "0.50 |"]
