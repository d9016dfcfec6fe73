from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage import UNHURRIED

from gliner_bento.scheduler.batching import BatchLimits, batch_cost, form_batch, is_full


@dataclass(frozen=True)
class Waiting:
    cost: int
    group: Hashable = None
    overtaken: int = 0


LIMITS = BatchLimits(max_batch_size=4, max_batch_tokens=100)

waiting_items = st.lists(
    st.builds(Waiting, cost=st.integers(1, 120), group=st.integers(0, 2), overtaken=st.integers(0, 5)),
    min_size=1,
    max_size=40,
)
limits = st.builds(
    BatchLimits,
    max_batch_size=st.integers(1, 10),
    max_batch_tokens=st.integers(1, 400),
    lookahead=st.integers(1, 40),
    max_overtakes=st.integers(0, 6),
    free_padding_tokens=st.integers(0, 60),
)


both_kinds = pytest.mark.parametrize("packs", [False, True], ids=["padded", "packed"])


def cost_of(batch: list[Waiting], packs: bool = False) -> int:
    return batch_cost([item.cost for item in batch], packs=packs)


def serve_all(waiting: list[Waiting], limits: BatchLimits, packs: bool = False) -> list[list[int]]:
    """Form batches until nothing waits; each as positions in `waiting`. Counts overtaking as the queue does."""
    rest = list(enumerate(waiting))
    batches = []
    while rest:
        taken = form_batch([item for _, item in rest], limits, packs=packs)
        batches.append([rest[index][0] for index in taken])
        rest = [
            (position, replace(item, overtaken=item.overtaken + (index < taken[-1])))
            for index, (position, item) in enumerate(rest)
            if index not in taken
        ]
    return batches


@both_kinds
@UNHURRIED
@given(waiting=waiting_items, limits=limits)
def test_batch_keeps_every_limit(packs: bool, waiting: list[Waiting], limits: BatchLimits) -> None:
    indices = form_batch(waiting, limits, packs=packs)
    batch = [waiting[index] for index in indices]
    assert len(batch) <= limits.max_batch_size
    assert len(batch) == 1 or cost_of(batch, packs) <= limits.max_batch_tokens
    assert max(indices) < limits.lookahead
    assert len({item.group for item in batch}) == 1


@both_kinds
@UNHURRIED
@given(waiting=waiting_items, limits=limits)
def test_oldest_is_in_and_nobody_twice_in_order_of_age(
    packs: bool, waiting: list[Waiting], limits: BatchLimits
) -> None:
    indices = form_batch(waiting, limits, packs=packs)
    assert indices[0] == 0
    assert indices == sorted(set(indices))


@UNHURRIED
@given(waiting_items, limits)
def test_batch_never_costs_more_than_its_items_alone(waiting: list[Waiting], limits: BatchLimits) -> None:
    batch = [waiting[index] for index in form_batch(waiting, limits, packs=False)]
    per_batch = limits.free_padding_tokens
    assert cost_of(batch) + per_batch <= sum(item.cost + per_batch for item in batch)


@UNHURRIED
@given(waiting_items, limits)
def test_batch_stops_only_where_no_item_in_sight_could_join(waiting: list[Waiting], limits: BatchLimits) -> None:
    roomy = replace(limits, max_overtakes=10**6)
    indices = form_batch(waiting, roomy, packs=False)
    batch = [waiting[index] for index in indices]
    if len(batch) == roomy.max_batch_size:
        return
    for index, item in enumerate(waiting[: roomy.lookahead]):
        if index not in indices and item.group == batch[0].group:
            grown = cost_of([*batch, item])
            extra_padding = grown - cost_of(batch) - item.cost
            assert grown > roomy.max_batch_tokens or extra_padding > roomy.free_padding_tokens


@both_kinds
@UNHURRIED
@given(waiting=waiting_items, limits=limits)
def test_choice_is_deterministic_and_blind_to_what_is_out_of_sight(
    packs: bool, waiting: list[Waiting], limits: BatchLimits
) -> None:
    assert form_batch(waiting, limits, packs=packs) == form_batch(waiting[: limits.lookahead], limits, packs=packs)


@both_kinds
@UNHURRIED
@given(waiting=waiting_items, limits=limits)
def test_item_overtaken_too_often_lets_nobody_pass(packs: bool, waiting: list[Waiting], limits: BatchLimits) -> None:
    indices = form_batch(waiting, limits, packs=packs)
    passed = [waiting[index] for index in range(indices[-1]) if index not in indices]
    assert all(item.overtaken < limits.max_overtakes for item in passed)


@both_kinds
@UNHURRIED
@given(waiting=waiting_items, limits=limits)
def test_everyone_is_served_once_and_overtaken_at_most_so_often(
    packs: bool, waiting: list[Waiting], limits: BatchLimits
) -> None:
    waiting = [replace(item, overtaken=0) for item in waiting]
    batches = serve_all(waiting, limits, packs)
    assert sorted(position for batch in batches for position in batch) == list(range(len(waiting)))
    turn = {position: number for number, batch in enumerate(batches) for position in batch}
    for position in range(len(waiting)):
        overtakes = sum(batch[-1] > position for batch in batches[: turn[position]])
        assert overtakes <= min(limits.max_overtakes, limits.lookahead - 1)


@UNHURRIED
@given(waiting_items, limits)
def test_batch_is_full_when_even_the_shortest_later_arrival_could_not_join(
    waiting: list[Waiting], limits: BatchLimits
) -> None:
    batch = [waiting[index] for index in form_batch(waiting, limits, packs=False)]
    generous = replace(limits, free_padding_tokens=10**6, max_overtakes=10**6, lookahead=len(batch) + 1)
    grown = form_batch([*batch, Waiting(1, batch[0].group)], generous, packs=False)
    out_of_sight = len(waiting) >= limits.lookahead
    assert is_full(batch, len(waiting), limits, packs=False) == (out_of_sight or len(grown) == len(batch))


@UNHURRIED
@given(waiting=waiting_items, limits=limits)
def test_packed_batch_leaves_out_only_what_did_not_fit_in_its_turn(waiting: list[Waiting], limits: BatchLimits) -> None:
    roomy = replace(limits, max_overtakes=10**6)
    indices = form_batch(waiting, roomy, packs=True)
    for index, item in enumerate(waiting[: roomy.lookahead]):
        if index not in indices and item.group == waiting[0].group:
            before = [waiting[earlier] for earlier in indices if earlier < index]
            assert len(before) == roomy.max_batch_size or cost_of([*before, item], packs=True) > roomy.max_batch_tokens


@UNHURRIED
@given(waiting=waiting_items, limits=limits)
def test_packed_batch_is_full_when_an_item_of_its_mean_cost_could_not_join(
    waiting: list[Waiting], limits: BatchLimits
) -> None:
    batch = [waiting[index] for index in form_batch(waiting, limits, packs=True)]
    mean = cost_of(batch, packs=True) / len(batch)
    no_room = len(batch) == limits.max_batch_size or (len(batch) + 1) * mean > limits.max_batch_tokens
    assert is_full(batch, len(waiting), limits, packs=True) == (no_room or len(waiting) >= limits.lookahead)


def test_packed_items_go_in_order_and_a_smaller_one_fills_what_is_left() -> None:
    waiting = [Waiting(20), Waiting(70), Waiting(21), Waiting(88), Waiting(10), Waiting(1)]
    assert form_batch(waiting, LIMITS, packs=True) == [0, 1, 4]


def test_near_lengths_go_together_before_older_ones() -> None:
    waiting = [Waiting(20), Waiting(90), Waiting(21), Waiting(88), Waiting(20), Waiting(19)]
    assert form_batch(waiting, LIMITS, packs=False) == [0, 2, 4, 5]


def test_of_equal_lengths_the_oldest_go_first() -> None:
    waiting = [Waiting(20), *[Waiting(15)] * 9]
    assert form_batch(waiting, LIMITS, packs=False) == [0, 1, 2, 3]


def test_oversize_item_runs_alone() -> None:
    assert form_batch([Waiting(500), Waiting(500), Waiting(1)], LIMITS, packs=False) == [0]


def test_oversize_item_joins_no_other() -> None:
    assert form_batch([Waiting(50), Waiting(101), Waiting(50)], LIMITS, packs=False) == [0, 2]


def test_short_item_stays_out_of_a_long_batch() -> None:
    few = BatchLimits(max_batch_size=8, max_batch_tokens=10_000, free_padding_tokens=32)
    assert form_batch([Waiting(400), Waiting(10), Waiting(390)], few, packs=False) == [0, 2]


def test_one_very_long_item_does_not_pad_many_short_ones() -> None:
    few = BatchLimits(max_batch_size=8, max_batch_tokens=10_000, free_padding_tokens=32)
    assert form_batch([*[Waiting(20)] * 4, Waiting(30)], few, packs=False) == [0, 1, 2, 3]


def test_mixed_lengths_waste_less_than_a_fifth_where_arrival_order_wastes_half() -> None:
    lengths = [13, 118, 40, 77, 25, 96, 60, 19, 110, 33] * 6
    limits = BatchLimits(max_batch_size=8, max_batch_tokens=1024)
    waiting = [Waiting(length) for length in lengths]
    by_length = sum(cost_of([waiting[position] for position in batch]) for batch in serve_all(waiting, limits))
    bounds = [*range(0, len(waiting), 8), len(waiting)]
    by_arrival = sum(cost_of(waiting[start:end]) for start, end in pairwise(bounds))
    assert by_arrival > 1.8 * sum(lengths)
    assert by_length < 1.2 * sum(lengths)


@pytest.mark.parametrize("field", ["max_batch_size", "max_batch_tokens", "lookahead"])
def test_limit_below_one_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least 1"):
        replace(LIMITS, **{field: 0})


@pytest.mark.parametrize("field", ["max_overtakes", "free_padding_tokens"])
def test_negative_allowance_is_refused(field: str) -> None:
    assert getattr(replace(LIMITS, **{field: 0}), field) == 0
    with pytest.raises(ValueError, match=f"{field} must be at least 0"):
        replace(LIMITS, **{field: -1})
