"""Agreement: what counts as the same answer, and what does not."""

from __future__ import annotations

import json

import pytest

from gliner_bento.benchmark.answers import Agreement, agreement_of, apart, found, judged, misfits, own_share
from gliner_bento.benchmark.load import Reply

ADA = {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}
LONDON = {"start": 7, "end": 13, "text": "London", "label": "city", "score": 0.8}


def answer(*entities: dict, relations: list | None = None) -> dict:
    return {"entities": list(entities), "relations": relations}


def compared(given: dict, expected: dict) -> dict:
    return agreement_of([given], [found(expected)])


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
def test_an_answer_is_wrong_with_other_findings_or_scores_but_not_for_one_on_the_threshold(given, wrong, f1):
    told = compared(given, answer(ADA, LONDON))
    assert (told["wrong"], told["f1"]) == (wrong, pytest.approx(f1))


def test_relations_count_and_gliners_name_for_a_label_is_understood():
    ours = {"relation": "lives in", "score": 0.7, "head": ADA | {"entity_idx": 0}, "tail": LONDON | {"entity_idx": 1}}
    head, tail = ({**{k: v for k, v in one.items() if k != "label"}, "type": one["label"]} for one in (ADA, LONDON))
    theirs = {"relation": "lives in", "score": 0.7, "head": head, "tail": tail}
    assert found(answer(ADA, LONDON, relations=[ours])) == found(answer(ADA, LONDON, relations=[theirs]))
    assert compared(answer(ADA, LONDON), answer(ADA, LONDON, relations=[ours]))["wrong"] == 1


def test_a_run_is_judged_by_its_answers_and_only_where_something_is_expected():
    replies = [
        Reply(0, "200", json.dumps(answer(ADA)).encode(), 0.1),
        Reply(1, "200", json.dumps([answer(ADA)]).encode(), 0.1),
        Reply(1, "503", b"", 0.1),
    ]
    agreement = judged(replies, [found(answer(ADA)), found(answer(LONDON))])
    assert isinstance(agreement, Agreement)
    assert (agreement.answers, agreement.wrong, agreement.same_spans) == (2, 1, 1)
    assert judged(replies, None) is None


def test_answers_are_as_far_apart_as_their_scores_and_what_is_missing_counts_as_on_the_threshold():
    ours, theirs = found(answer(ADA, LONDON)), found(answer(ADA | {"score": 0.7}))
    assert apart(ours, theirs) == apart(theirs, ours) == pytest.approx(0.2 + 0.3)
    assert apart(ours, ours) == apart({}, {}) == 0


def test_an_answer_is_its_adapters_unless_it_is_nearer_to_anothers():
    replies = [
        Reply(0, "200", json.dumps(answer(ADA | {"score": 0.85})).encode(), 0.1),
        Reply(1, "200", json.dumps(answer(LONDON)).encode(), 0.1),
        Reply(1, "503", b"", 0.1),
    ]
    expected = [found(answer(ADA)), found(answer(ADA))]
    others = [[found(answer()), found(answer(LONDON))], [found(answer(LONDON))]]
    assert own_share(replies, expected, others) == 0.5
    assert own_share(replies, expected, [others[0], []]) == 1.0
    assert own_share(replies[2:], expected, others) is None


def test_an_entity_that_does_not_fit_its_text_is_a_misfit():
    replies = [Reply(i, "200", json.dumps(answer(ADA)).encode(), 0.1) for i in range(2)]
    assert misfits(replies, ["Ada in London", "Bob in London"]) == 1
