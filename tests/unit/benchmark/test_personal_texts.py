"""How texts with personal data are read, and what counts as covered."""

from __future__ import annotations

import pytest

from benchmark.personal_data import NEGATIVES, SETS, marked, scores


@pytest.mark.parametrize("name", SETS)
def test_marks_are_values_of_the_texts(name):
    rows = [*marked(name)]
    assert len(rows) > (8 if name == "seventh/forms" else 15)
    for text, spans in rows:
        assert "[[" not in text
        assert "]]" not in text
        assert all(0 <= start < end <= len(text) and text[start:end].strip() for start, end in spans)
    assert any(not spans for _, spans in rows)


def test_a_value_is_covered_if_all_of_it_is_found_and_a_find_is_right_if_it_has_some_of_one():
    rows = [("Ada Ng, Bob", [(0, 6), (8, 11)]), ("May", [])]
    assert scores(rows, [[(0, 3), (4, 7), (8, 10)], [(0, 3)]]) == (1 / 2, 3 / 4)
    assert scores(rows, [[], []]) == (0, 0)


@pytest.mark.parametrize("name", NEGATIVES)
def test_sets_without_values_have_none(name):
    rows = [*marked(name)]
    assert len(rows) > 20
    assert not any(spans for _, spans in rows)
