"""Thresholds of labels, against values that are computed by hand, and overlap resolution, against the server's."""

from __future__ import annotations

import random

import pytest

from gliner_bento.files.evaluation.gold import Link, Span
from gliner_bento.files.evaluation.thresholds import (
    Candidate,
    Scored,
    all_links,
    flat_spans,
    flat_spans_of_labels,
    nested_spans,
    tune,
)

START = {"city": 0.5, "person": 0.5}


def text(*spans, right=()):
    """A text with these candidates: label, start, end, score. right: their indices."""
    candidates = [Candidate(Span(start, end, label), label, score) for label, start, end, score in spans]
    known = frozenset(candidates[index].value for index in right)
    return Scored(known, sorted(candidates, key=lambda one: -one.score))


@pytest.mark.parametrize(
    ("resolve", "options", "within_labels"),
    [(flat_spans, {}, False), (nested_spans, {"flat_ner": False}, False), (flat_spans_of_labels, {}, True)],
)
def test_overlaps_are_resolved_as_by_the_server(resolve, options, within_labels):
    overlap = pytest.importorskip("gliner_bento.engine.heads.overlap")
    predictions = pytest.importorskip("gliner_bento.engine.heads.predictions")
    extraction = pytest.importorskip("gliner_bento.tasks.extraction")
    rng = random.Random(5)
    for _ in range(200):
        spans = {(first := rng.randrange(12), first + rng.randrange(4), rng.randrange(3)) for _ in range(14)}
        scored = [predictions.Span(*span, rng.random()) for span in sorted(spans)]
        table = predictions.SpanTable.of(scored)
        kept = overlap.kept_spans(table, extraction.ExtractionItem("", **options), within_labels=within_labels)
        expected = {(span.first, span.last + 1, str(span.label)) for span in table.take(kept)}
        candidates = [
            Candidate(Span(one.first, one.last + 1, str(one.label)), str(one.label), one.score) for one in scored
        ]
        assert {tuple(span) for span in resolve(sorted(candidates, key=lambda one: -one.score))} == expected


def test_each_label_gets_the_threshold_with_its_best_f1():
    """Cities score 0.4 and are right; persons score 0.6, and every second is right at 0.8."""
    texts = [
        text(
            ("city", 0, 4, 0.42), ("city", 9, 12, 0.28), ("person", 20, 24, 0.6 + 0.2 * even), right=[0, 2][: 1 + even]
        )
        for even in (0, 1) * 6
    ]
    tuned = tune(texts, START, flat_spans)
    assert tuned.thresholds == {"city": 0.4, "person": 0.6}, "of equal ones the nearest to 0.5"
    assert (tuned.start.micro.f1, tuned.fitted.micro.f1) == (pytest.approx(12 / 30), 1.0)
    assert tuned.held_out.micro.f1 == 1.0
    assert tuned.change.f1 == pytest.approx(1 - 12 / 30)
    assert tuned.changes["city"].f1 is None or tuned.changes["city"].f1 == 1.0


def test_a_candidate_below_its_threshold_suppresses_no_other():
    texts = [text(("person", 0, 9, 0.7), ("city", 0, 4, 0.6), right=[1]) for _ in range(6)]
    tuned = tune([*texts, *(text(("person", 0, 9, 0.9), right=[0]) for _ in range(6))], START, flat_spans)
    assert tuned.thresholds == {"city": 0.5, "person": 0.7}
    assert tuned.fitted.micro.f1 == 1.0


def test_the_held_out_score_is_not_that_of_the_texts_that_were_fitted():
    """With scores that mean nothing, what is gained on these texts is lost on others."""
    rng = random.Random(2)
    texts = [text(("city", 0, 4, rng.random()), right=[0] if rng.random() < 0.5 else []) for _ in range(24)]
    tuned = tune(texts, {"city": 0.5}, flat_spans)
    assert tuned.fitted.micro.f1 > tuned.start.micro.f1
    assert tuned.held_out.micro.f1 < tuned.fitted.micro.f1
    assert tune(texts, {"city": 0.5}, flat_spans) == tuned, "the folds are always the same"


def test_a_floor_of_recall_costs_precision_and_may_be_out_of_reach():
    texts = [
        text(("city", 0, 4, 0.9 if number % 2 else 0.3), *[("city", 9, 12, 0.31)] * 3, right=[0])
        for number in range(20)
    ]
    texts += [Scored(frozenset([Span(0, 4, "person")]), ()) for _ in range(5)]
    tuned = tune(texts, START, flat_spans)
    assert (tuned.thresholds["city"], tuned.fitted.labels["city"].recall) == (0.5, 0.5)
    tuned = tune(texts, START, flat_spans, min_recall=0.9)
    assert (tuned.thresholds["city"], tuned.fitted.labels["city"].recall) == (0.25, 1.0)
    assert (tuned.missed, tuned.thresholds["person"]) == (["person"], 0.5)


def test_relations_do_not_conflict():
    links = [Link("Ada", "born in", "Oslo"), Link("Ada", "lived in", "Oslo")]
    candidates = [Candidate(links[0], "born in", 0.3), Candidate(links[1], "lived in", 0.2)]
    tuned = tune([Scored(frozenset(links), candidates)] * 5, {"born in": 0.5, "lived in": 0.5}, all_links)
    assert tuned.thresholds == {"born in": 0.25, "lived in": 0.15}
    assert tuned.held_out.micro.f1 == 1.0


def test_too_few_examples_are_an_error_and_a_rare_label_keeps_its_threshold():
    one = text(("city", 0, 4, 0.4), ("person", 9, 12, 0.4), right=[0, 1])
    with pytest.raises(ValueError, match=r"^cross-validation needs at least 2 examples with a result; there is 1$"):
        tune([one], START, flat_spans)
    with pytest.raises(ValueError, match=r"^no label is known 5 times; "):
        tune([one] * 4, START, flat_spans)
    texts = [text(("city", 0, 4, 0.4), ("person", 9, 12, 0.4), right=[0])] * 5
    assert tune([one, *texts], START, flat_spans).thresholds == {"city": 0.35}
