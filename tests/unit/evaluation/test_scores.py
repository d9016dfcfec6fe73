"""Scores, against values that are computed by hand."""

from __future__ import annotations

import random
from itertools import product

import pytest

from gliner_bento.files.evaluation.gold import Choice, Link, Span
from gliner_bento.files.evaluation.scores import (
    Confusion,
    Counts,
    changes,
    choice_pairs,
    confusions,
    exact_counts,
    f1,
    link_pairs,
    matched,
    overlapping_counts,
    precision,
    recall,
    scores,
    span_pairs,
)

ADA, BILL, OSLO = Span(0, 12, "person"), Span(20, 30, "person"), Span(40, 44, "city")


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (Counts(3, 4, 6), (0.75, 0.5, 0.6)),
        (Counts(0, 4, 6), (0.0, 0.0, 0.0)),
        (Counts(0, 0, 6), (None, 0.0, 0.0)),
        (Counts(0, 4, 0), (0.0, None, 0.0)),
        (Counts(0, 0, 0), (None, None, None)),
    ],
)
def test_precision_recall_and_f1(counts, expected):
    assert (precision(counts), recall(counts), f1(counts)) == pytest.approx(expected)


def test_exact_and_overlapping_counts_of_a_text():
    predicted = [ADA, Span(20, 24, "person"), Span(40, 44, "person")]
    assert exact_counts([ADA, BILL, OSLO], predicted, lambda span: span.label) == {
        "person": Counts(1, 3, 2),
        "city": Counts(0, 0, 1),
    }
    assert overlapping_counts([ADA, BILL, OSLO], predicted) == {"person": Counts(2, 3, 2), "city": Counts(0, 0, 1)}


def test_one_long_prediction_is_right_once():
    whole = Span(0, 50, "person")
    assert overlapping_counts([ADA, BILL], [whole]) == {"person": Counts(1, 1, 2)}
    assert matched([ADA, BILL], [whole]) == [(ADA, whole)]  # it shares most characters with the longer one


def test_spans_that_only_touch_do_not_overlap():
    assert matched([Span(0, 5, "city")], [Span(5, 9, "city")]) == []


def test_a_pair_has_the_same_label_before_the_same_place():
    nearby = Span(41, 48, "city")
    assert matched([OSLO], [Span(40, 44, "person"), nearby]) == [(OSLO, nearby)]


def test_the_matching_is_that_of_all_pairs():
    rng = random.Random(3)
    for _ in range(200):
        spans = [Span(start := rng.randrange(20), start + rng.randint(1, 6), rng.choice("ab")) for _ in range(12)]
        gold, predicted = set(spans[:6]), set(spans[6:])
        left, pairs = [{*gold}, {*predicted}], []
        while choices := [
            pair for pair in product(*left) if pair[0].start < pair[1].end and pair[1].start < pair[0].end
        ]:
            best = min(choices, key=lambda pair: (
                pair[0].label != pair[1].label,
                pair[0][:2] != pair[1][:2],
                max(pair[0].start, pair[1].start) - min(pair[0].end, pair[1].end),
                pair,
            ))  # fmt: skip
            pairs.append(best)
            for side, span in zip(left, best, strict=True):
                side.remove(span)
        assert matched(gold, predicted) == pairs


def test_confusion_counts_each_entity_once():
    predicted = [ADA, Span(22, 30, "city"), Span(60, 64, "city")]
    assert confusions("entities", [span_pairs([ADA, BILL, OSLO], predicted), span_pairs([ADA], [ADA])]) == [
        Confusion("entities", "person", "person", 2),
        Confusion("entities", None, "city", 1),
        Confusion("entities", "city", None, 1),
        Confusion("entities", "person", "city", 1),
    ]


def test_a_relation_is_confused_with_another_of_the_same_ends():
    known = [Link("Ada", "lived in", "London"), Link("Ada", "wrote", "Notes"), Link("Bill", "lived in", "Oslo")]
    predicted = [Link("Ada", "lived in", "London"), Link("Bill", "born in", "Oslo"), Link("Oslo", "near", "Bill")]
    assert sorted(link_pairs(known, predicted), key=str) == [
        ("lived in", "born in"),
        ("lived in", "lived in"),
        ("wrote", None),
        (None, "near"),
    ]


def test_a_class_is_confused_with_another_of_the_same_question():
    known = [Choice("mood", "calm"), Choice("topic", "sport"), Choice("topic", "law")]
    predicted = [Choice("mood", "angry"), Choice("topic", "law")]
    assert choice_pairs(known, predicted) == [
        ("topic: law", "topic: law"),
        ("mood: calm", "mood: angry"),
        ("topic: sport", None),
    ]


def test_the_scores_of_labels_and_of_all_of_them():
    texts = [
        {"person": Counts(1, 2, 1), "city": Counts(1, 1, 1)},
        {"person": Counts(1, 1, 2)},
        {},
        {"other": Counts(0, 9, 9)},
    ]
    result = scores(texts, ["city", "person", "absent"])
    assert list(result.labels) == ["city", "person", "absent"]
    person, micro, absent = result.labels["person"], result.micro, result.labels["absent"]
    assert (person.right, person.predicted, person.gold) == (2, 3, 3)
    assert (person.precision, person.recall, person.f1) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert (micro.right, micro.predicted, micro.gold) == (3, 4, 4), "`other` was not asked for"
    assert (absent.f1, absent.f1_interval) == (None, None)


def test_an_interval_is_that_of_texts_drawn_with_replacement():
    """Of two texts, a quarter of the samples has only the wrong one, a quarter only the right one."""
    right, wrong = {"city": Counts(1, 1, 1)}, {"city": Counts(0, 1, 1)}
    assert scores([right, wrong], ["city"]).micro.f1_interval == (0.0, 1.0)
    assert scores([right] * 9, ["city"]).micro.f1_interval == (1.0, 1.0)
    low, high = scores([right, wrong] * 50, ["city"]).labels["city"].recall_interval
    assert 0.37 <= low <= 0.44 and 0.56 <= high <= 0.63, "the standard error is 0.05"  # noqa: PT018


def test_the_same_counts_have_the_same_intervals():
    texts = [{"city": Counts(int(number % 3 == 0), 1, 1)} for number in range(30)]
    assert scores(texts, ["city"]) == scores(texts, ["city"])
    assert scores(texts, ["city"], samples=9, seed=1) != scores(texts, ["city"], samples=9)


def test_a_change_has_the_interval_of_the_same_samples_of_both():
    """Where all texts change by the same, so does every sample; independent samples would differ."""
    half = [{"city": Counts(1, 2, 1)}, {"city": Counts(0, 1, 1)}] * 20
    by_label, micro = changes((half, ["city"]), (half, ["city"]))
    assert (by_label["city"].f1, by_label["city"].interval) == (0.0, (0.0, 0.0))
    better = [{"city": Counts(1, 1, 1)}, {"city": Counts(0, 1, 1)}] * 20
    by_label, micro = changes((half, ["city", "old"]), (better, ["city", "new"]))
    assert (list(by_label), micro.f1) == (["city"], pytest.approx(0.5 - 40 / 100))
    low, high = micro.interval
    assert 0 < low < micro.f1 < high < 0.2
    assert changes(([{}], ["city"]), ([{"city": Counts(0, 1, 0)}], ["city"]))[1].f1 is None
