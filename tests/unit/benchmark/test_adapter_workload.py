"""Workloads with adapters: every text equally often, with adapters that can be distinguished."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.adapter_workload import Expected, adapter_ids, round_robin, zipf
from gliner_bento.loadtest import workload
from gliner_bento.tasks.requests import ExtractRequest

TEXTS = workload.mixed(64)


@pytest.mark.parametrize("count", [1, 8, 64, 256])
def test_adapters_take_turns_and_share_the_texts(count):
    names = adapter_ids("attention", count)
    bodies = round_robin(TEXTS, names)
    assert [body["adapter_id"] for body in bodies] == names * (len(bodies) // count)
    adapters_of = defaultdict(set)
    for body in bodies:
        adapters_of[body["text"]].add(body["adapter_id"])
    assert adapters_of.keys() == {body["text"] for body in TEXTS}
    assert {len(adapters) for adapters in adapters_of.values()} == {max(min(2, count), count // 32)}
    for encoded in workload.encoded(bodies[:5]):
        ExtractRequest.model_validate_json(encoded)


def test_fewer_adapters_have_the_texts_that_they_have_among_more():
    assert round_robin(TEXTS, adapter_ids("linear", 64))[:64] == round_robin(TEXTS, adapter_ids("linear", 256))[:64]


@given(st.integers(1, 40), st.integers(1, 300))
def test_all_adapters_have_the_same_number_of_texts(texts, adapters):
    bodies = round_robin(TEXTS[:texts], adapter_ids("a", adapters))
    counts = Counter(body["adapter_id"] for body in bodies)
    assert len(counts) == adapters
    assert len(set(counts.values())) == 1
    assert len({(body["adapter_id"], body["text"]) for body in bodies}) == len(bodies)


def test_by_zipfs_law_the_first_adapter_is_the_most_frequent_and_each_cycles_through_its_texts():
    bodies = round_robin(TEXTS, adapter_ids("attention", 64))
    drawn = zipf(bodies, 6000)
    assert drawn == zipf(bodies, 6000) != zipf(bodies, 6000, seed=1)
    counts = Counter(body["adapter_id"] for body in drawn)
    first, tenth = counts["attention-000"], counts["attention-009"]
    assert first == counts.most_common(1)[0][1]
    assert 7 < first / tenth < 14
    of_first = [body for body in drawn if body["adapter_id"] == "attention-000"]
    assert of_first[:4] == [body for body in bodies if body["adapter_id"] == "attention-000"] * 2


def test_expected_predictions_come_with_those_of_other_adapters_for_the_same_text():
    base = TEXTS[:2]
    bodies = [*base, base[0] | {"adapter_id": "a"}, base[0] | {"adapter_id": "b"}, base[1] | {"adapter_id": "a"}]
    answers = [{(i, i, "x"): 0.9} for i in range(len(bodies))]
    result = Expected(bodies, answers).of([bodies[2], bodies[4], bodies[0]])
    assert result["expected"] == [answers[2], answers[4], answers[0]]
    assert result["other_adapters"] == [[answers[0], answers[3]], [answers[1]], [answers[2], answers[3]]]
