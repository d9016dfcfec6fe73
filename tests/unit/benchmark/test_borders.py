"""Two extractions of a text: which entities are near a border, and which are in both."""

from __future__ import annotations

import pytest

from benchmark.borders import NEAR_WORDS, BorderAgreement, compare_at_borders

TEXT = " ".join(f"w{number:03}" for number in range(200))
LETTERS = 5
BORDER = 100


def entity(first: int, last: int | None = None, label: str = "x") -> tuple[int, int, str]:
    return first * LETTERS, (first if last is None else last) * LETTERS + 4, label


@pytest.mark.parametrize(
    ("span", "near"),
    [
        (entity(BORDER), True),
        (entity(BORDER - 1), True),
        (entity(BORDER - 5, BORDER + 5), True),
        (entity(BORDER + NEAR_WORDS - 1, 150), True),
        (entity(BORDER + NEAR_WORDS, 150), False),
        (entity(50, BORDER - NEAR_WORDS), True),
        (entity(50, BORDER - NEAR_WORDS - 1), False),
        (entity(0), False),
        (entity(199), False),
    ],
)
def test_an_entity_is_near_a_border_if_one_of_the_words_next_to_it_is_in_it(span, near):
    agreement = compare_at_borders(TEXT, {span}, set(), [BORDER * LETTERS])
    assert agreement == (BorderAgreement(near=1) if near else BorderAgreement(elsewhere=1))
    assert compare_at_borders(TEXT, {span}, set(), [BORDER * LETTERS - 1]) == agreement, "the end of the word before"


def test_an_entity_in_both_is_counted_once_and_another_label_is_another_entity():
    one = {entity(10), entity(40), entity(98), entity(101)}
    other = {entity(10), entity(40, label="y"), entity(98, 99), entity(101), entity(160)}
    agreement = compare_at_borders(TEXT, one, other, [0, BORDER * LETTERS])
    assert agreement == BorderAgreement(near=4, near_in_both=2, elsewhere=3, elsewhere_in_both=0)


def test_without_a_border_every_entity_is_elsewhere():
    assert compare_at_borders(TEXT, {entity(10)}, {entity(10)}, []) == BorderAgreement(elsewhere=1, elsewhere_in_both=1)
