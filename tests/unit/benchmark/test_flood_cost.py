"""What a flood was served within a time: the cost of a text counts as spread over the time until its answer."""

from __future__ import annotations

import pytest

from benchmark.fairness import Flood


@pytest.mark.parametrize(
    ("begin_s", "end_s", "cost"),
    [(0.0, 10.0, 130.0), (0.0, 2.0, 50.0), (2.0, 4.0, 50.0), (4.0, 6.0, 15.0), (6.0, 9.0, 15.0), (10.0, 12.0, 0.0)],
)
def test_a_text_counts_by_its_time_within_it(begin_s, end_s, cost):
    flood = Flood("http://127.0.0.1:9", [b"{}"], 1)
    flood._served += [(0.0, 4.0, 100.0), (4.0, 8.0, 30.0)]
    assert flood.cost_between(begin_s, end_s) == pytest.approx(cost)
