"""How a round's figures become a verdict."""

from __future__ import annotations

import pytest

from reliability.regression import worse_percent


def test_worse_is_positive_whichever_direction_is_better() -> None:
    assert worse_percent([100.0], [90.0], more_is_better=True) == pytest.approx(10)
    assert worse_percent([10.0], [12.0], more_is_better=False) == pytest.approx(20)
    assert worse_percent([10.0], [9.0], more_is_better=False) == pytest.approx(-10)


def test_rounds_are_compared_in_pairs_so_that_a_slow_round_of_both_does_not_count() -> None:
    assert worse_percent([100.0, 10.0, 100.0], [99.0, 9.9, 99.0], more_is_better=True) == pytest.approx(1)
