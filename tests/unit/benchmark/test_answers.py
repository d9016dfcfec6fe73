"""Agreement: which predictions count as the same."""

from __future__ import annotations

import json

import pytest

from benchmark.answers import Agreement, agreement_of, agreement_of_replies, distance, own_adapter_share, predictions_of
from gliner_bento.loadtest.load import TimedResponse
from gliner_bento.loadtest.measure import offset_errors

ADA = {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}
LONDON = {"start": 7, "end": 13, "text": "London", "label": "city", "score": 0.8}


def answer(*entities: dict, relations: list | None = None) -> dict:
    return {"entities": list(entities), "relations": relations}


def compared(given: dict, expected: dict) -> dict:
    return agreement_of([given], [predictions_of(expected)])


@pytest.mark.parametrize(
    ("given", "wrong", "f1"),
    [
        (answer(ADA, LONDON), 0, 1.0),
        (answer(LONDON, ADA | {"score": 0.90009}), 0, 1.0),
        (answer(ADA | {"score": 0.9002}, LONDON), 1, 1.0),
        (answer(ADA), 1, 2 / 3),
        (answer(ADA, LONDON, ADA | {"label": "city", "score": 0.50005}), 0, 0.8),
        (answer(ADA, LONDON, ADA | {"label": "city", "score": 0.6}), 1, 0.8),
        (answer(ADA, LONDON | {"end": 12}), 1, 0.5),
    ],
)
def test_other_predictions_or_scores_are_wrong_unless_they_are_on_the_threshold(given, wrong, f1):
    summary = compared(given, answer(ADA, LONDON))
    assert (summary["wrong"], summary["f1"]) == (wrong, pytest.approx(f1))


def test_relations_count_and_gliners_name_for_a_label_is_understood():
    ours = {"relation": "lives in", "score": 0.7, "head": ADA | {"entity_idx": 0}, "tail": LONDON | {"entity_idx": 1}}
    head, tail = ({**{k: v for k, v in one.items() if k != "label"}, "type": one["label"]} for one in (ADA, LONDON))
    theirs = {"relation": "lives in", "score": 0.7, "head": head, "tail": tail}
    assert predictions_of(answer(ADA, LONDON, relations=[ours])) == predictions_of(
        answer(ADA, LONDON, relations=[theirs])
    )
    assert compared(answer(ADA, LONDON), answer(ADA, LONDON, relations=[ours]))["wrong"] == 1


def test_the_agreement_of_a_run_counts_its_successful_responses():
    replies = [
        TimedResponse(0, "200", json.dumps(answer(ADA)).encode(), 0.1),
        TimedResponse(1, "200", json.dumps([answer(ADA)]).encode(), 0.1),
        TimedResponse(1, "503", b"", 0.1),
    ]
    agreement = agreement_of_replies(replies, [predictions_of(answer(ADA)), predictions_of(answer(LONDON))])
    assert isinstance(agreement, Agreement)
    assert (agreement.answers, agreement.wrong, agreement.same_spans) == (2, 1, 1)


def test_the_distance_is_that_of_scores_and_a_missing_prediction_counts_as_on_the_threshold():
    ours, theirs = predictions_of(answer(ADA, LONDON)), predictions_of(answer(ADA | {"score": 0.7}))
    assert distance(ours, theirs) == distance(theirs, ours) == pytest.approx(0.2 + 0.3)
    assert distance(ours, ours) == distance({}, {}) == 0


def test_a_response_is_of_its_own_adapter_unless_it_is_nearer_to_another():
    replies = [
        TimedResponse(0, "200", json.dumps(answer(ADA | {"score": 0.85})).encode(), 0.1),
        TimedResponse(1, "200", json.dumps(answer(LONDON)).encode(), 0.1),
        TimedResponse(1, "503", b"", 0.1),
    ]
    expected = [predictions_of(answer(ADA)), predictions_of(answer(ADA))]
    other_adapters = [[predictions_of(answer()), predictions_of(answer(LONDON))], [predictions_of(answer(LONDON))]]
    assert own_adapter_share(replies, expected, other_adapters) == 0.5
    assert own_adapter_share(replies, expected, [other_adapters[0], []]) == 1.0
    assert own_adapter_share(replies[2:], expected, other_adapters) is None


def test_offsets_that_do_not_match_the_text_are_counted():
    replies = [TimedResponse(i, "200", json.dumps(answer(ADA)).encode(), 0.1) for i in range(2)]
    assert offset_errors(replies, ["Ada in London", "Bob in London"]) == 1
