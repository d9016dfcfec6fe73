"""What a flood was served within a time: the cost of a text counts as spread over the time until its answer."""

from __future__ import annotations

import pytest

from benchmark.fairness import Flood, served_cost


@pytest.mark.parametrize(
    ("begin_s", "end_s", "cost"),
    [(0.0, 10.0, 130.0), (0.0, 2.0, 50.0), (2.0, 4.0, 50.0), (4.0, 6.0, 15.0), (6.0, 9.0, 15.0), (10.0, 12.0, 0.0)],
)
def test_a_text_counts_by_its_time_within_it(begin_s, end_s, cost):
    flood = Flood("http://127.0.0.1:9", [b"{}"], 1)
    flood._served += [(0.0, 4.0, 100.0), (4.0, 8.0, 30.0)]
    assert flood.cost_between(begin_s, end_s) == pytest.approx(cost)


def test_a_text_costs_as_much_as_its_passes():
    one = b'{"entities":[],"usage":{"words":150,"tokens":200,"windows":1,"passes":1,"label_groups":1}}'
    two = b'{"entities":[],"usage":{"words":300,"tokens":400,"windows":2,"passes":2,"label_groups":1}}'
    assert served_cost(one) == 400
    assert served_cost(two) == served_cost(one + one) == 800
