"""Matches of recognizers and a model's entities in one answer, at every threshold."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.privacy.lists import NOTHING, Listed
from gliner_bento.privacy.recognizers.base import Match, Rule
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.tasks.extraction import Entity, Extraction, SourcedEntity
from gliner_bento.tasks.recognition import MatchMerger

TEXT = "ab cd 12 34 ef 56 78 gh"
LABELS = {"PHONE_NUMBER": "phone", "US_SSN": "ssn", "CREDIT_CARD": "card"}
SCORES = (0.05, 0.3, 0.4, 0.45, 0.5, 0.6, 0.9, 1.0)


def match_of(start: int, end: int, kind: str, score: float) -> Match:
    return Match(start, end, kind, score, Rule(kind, ""), score)


def entity_of(start: int, end: int, label: str, score: float) -> Entity:
    return Entity(start, end, TEXT[start:end], label, score)


def spans(kinds: list[str]) -> st.SearchStrategy[list[tuple[int, int, str, float]]]:
    span = st.tuples(st.integers(0, len(TEXT) - 1), st.integers(1, 9), st.sampled_from(kinds), st.sampled_from(SCORES))
    return st.lists(
        span.map(lambda one: (one[0], min(len(TEXT), one[0] + one[1]), one[2], one[3])), max_size=6, unique=True
    )


def greedy(entities: list[Entity]) -> list[Entity]:
    """Without overlaps, in order, as a model returns them."""
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda one: -one.score):
        if all(entity.end <= other.start or other.end <= entity.start for other in kept):
            kept.append(entity)
    return sorted(kept, key=lambda one: one.start)


def merged(
    matches: list[Match],
    entities: list[Entity],
    threshold: float,
    *,
    nested: bool = False,
    listed: Listed = NOTHING,
) -> list[Entity]:
    model = greedy([one for one in entities if one.score >= threshold and not listed.allows(one.start, one.end)])
    merger = MatchMerger(TEXT, matches, LABELS, SourcedEntity, lambda _: threshold, nested=nested, listed=listed)
    return list(merger.whole(Extraction(model)).entities)


LISTED = st.builds(
    lambda allowed, denied: Listed([one[:2] for one in allowed], [LabeledSpan(*one[:3], score=1.0) for one in denied]),
    spans([""]),
    spans(["phone", "project"]),
)


@given(spans([*LABELS, "OTHER"]), spans(["phone", "ssn", "date", "person"]), LISTED)
def test_a_higher_threshold_never_adds_an_entity(matches, entities, listed):
    found = [match_of(*one) for one in matches]
    model = [entity_of(*one) for one in entities]
    answers = [merged(found, model, threshold, listed=listed) for threshold in SCORES]
    for lower, higher in pairwise(answers):
        assert set(higher) <= set(lower)
    for answer in answers:
        assert all(left.end <= right.start for left, right in pairwise(answer)), "in order, without overlaps"


@given(spans([*LABELS]), spans(["phone", "ssn", "date", "person"]), st.sampled_from(SCORES), LISTED)
def test_what_is_allowed_hides_nothing_and_what_is_denied_is_there(matches, entities, threshold, listed):
    found = [match_of(*one) for one in matches]
    model = [entity_of(*one) for one in entities]
    answer = merged(found, model, threshold, listed=listed)
    others = [one for one in found if not listed.allows(one.start, one.end)]
    kept = [one for one in model if not listed.allows(one.start, one.end)]
    assert set(answer) >= set(merged(others, kept, threshold, listed=Listed((), listed.denied)))
    if len(listed.denied) == 1:
        (denied,) = listed.denied
        assert (denied.start, denied.end, denied.label) in {(one.start, one.end, one.label) for one in answer}


@given(spans([*LABELS, "OTHER"]), spans(["phone", "ssn", "date", "person"]), st.sampled_from(SCORES))
def test_with_nested_entities_a_higher_threshold_never_adds_one_either(matches, entities, threshold):
    found = [match_of(*one) for one in matches]
    model = [entity_of(*one) for one in entities]
    lower = merged(found, model, threshold, nested=True)
    assert set(merged(found, model, min(1.0, threshold + 0.1), nested=True)) <= set(lower)


def test_the_better_of_a_weak_match_and_an_entity_is_returned():
    weak, sure = match_of(6, 11, "PHONE_NUMBER", 0.4), match_of(6, 11, "PHONE_NUMBER", 0.5)
    date = entity_of(6, 11, "date", 0.9)
    assert [one.label for one in merged([weak], [date], 0.3)] == ["date"]
    assert [one.label for one in merged([sure], [date], 0.3)] == ["phone"]
    assert merged([sure], [date], 0.6) == [], "the match is left out, and still hides the entity"
    assert [one.label for one in merged([weak], [entity_of(6, 11, "date", 0.35)], 0.3)] == ["phone"]
