from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage import UNHURRIED

from gliner_bento.scheduler.batching import BatchLimits, form_batch, is_full


@dataclass(frozen=True)
class Waiting:
    tokens: int
    group: Hashable = None
    overtaken: int = 0


LIMITS = BatchLimits(max_batch_size=4, max_batch_tokens=100)

waiting_items = st.lists(
    st.builds(Waiting, tokens=st.integers(1, 120), group=st.integers(0, 2), overtaken=st.integers(0, 5)),
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


def padded_tokens(batch: list[Waiting]) -> int:
    return len(batch) * max(item.tokens for item in batch)


def serve_all(waiting: list[Waiting], limits: BatchLimits) -> list[list[int]]:
    """Form batches until nothing waits; each as positions in `waiting`. Counts overtaking as the queue does."""
    rest = list(enumerate(waiting))
    batches = []
    while rest:
        taken = form_batch([item for _, item in rest], limits)
        batches.append([rest[index][0] for index in taken])
        rest = [
            (position, replace(item, overtaken=item.overtaken + (index < taken[-1])))
            for index, (position, item) in enumerate(rest)
            if index not in taken
        ]
    return batches


@UNHURRIED
@given(waiting_items, limits)
def test_batch_keeps_every_limit(waiting: list[Waiting], limits: BatchLimits) -> None:
    indices = form_batch(waiting, limits)
    batch = [waiting[index] for index in indices]
    assert len(batch) <= limits.max_batch_size
    assert len(batch) == 1 or padded_tokens(batch) <= limits.max_batch_tokens
    assert max(indices) < limits.lookahead
    assert len({item.group for item in batch}) == 1


@UNHURRIED
@given(waiting_items, limits)
def test_oldest_is_in_and_nobody_twice_in_order_of_age(waiting: list[Waiting], limits: BatchLimits) -> None:
    indices = form_batch(waiting, limits)
    assert indices[0] == 0
    assert indices == sorted(set(indices))


@UNHURRIED
@given(waiting_items, limits)
def test_batch_never_costs_more_than_its_items_alone(waiting: list[Waiting], limits: BatchLimits) -> None:
    batch = [waiting[index] for index in form_batch(waiting, limits)]
    per_batch = limits.free_padding_tokens
    assert padded_tokens(batch) + per_batch <= sum(item.tokens + per_batch for item in batch)


@UNHURRIED
@given(waiting_items, limits)
def test_batch_stops_only_where_no_item_in_sight_could_join(waiting: list[Waiting], limits: BatchLimits) -> None:
    roomy = replace(limits, max_overtakes=10**6)
    indices = form_batch(waiting, roomy)
    batch = [waiting[index] for index in indices]
    if len(batch) == roomy.max_batch_size:
        return
    for index, item in enumerate(waiting[: roomy.lookahead]):
        if index not in indices and item.group == batch[0].group:
            grown = padded_tokens([*batch, item])
            extra_padding = grown - padded_tokens(batch) - item.tokens
            assert grown > roomy.max_batch_tokens or extra_padding > roomy.free_padding_tokens


@UNHURRIED
@given(waiting_items, limits)
def test_choice_is_deterministic_and_blind_to_what_is_out_of_sight(waiting: list[Waiting], limits: BatchLimits) -> None:
    assert form_batch(waiting, limits) == form_batch(waiting[: limits.lookahead], limits)


@UNHURRIED
@given(waiting_items, limits)
def test_item_overtaken_too_often_lets_nobody_pass(waiting: list[Waiting], limits: BatchLimits) -> None:
    indices = form_batch(waiting, limits)
    passed = [waiting[index] for index in range(indices[-1]) if index not in indices]
    assert all(item.overtaken < limits.max_overtakes for item in passed)


@UNHURRIED
@given(waiting_items, limits)
def test_everyone_is_served_once_and_overtaken_at_most_so_often(waiting: list[Waiting], limits: BatchLimits) -> None:
    waiting = [replace(item, overtaken=0) for item in waiting]
    batches = serve_all(waiting, limits)
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
    batch = [waiting[index] for index in form_batch(waiting, limits)]
    generous = replace(limits, free_padding_tokens=10**6, max_overtakes=10**6, lookahead=len(batch) + 1)
    grown = form_batch([*batch, Waiting(1, batch[0].group)], generous)
    out_of_sight = len(waiting) >= limits.lookahead
    assert is_full(batch, len(waiting), limits) == (out_of_sight or len(grown) == len(batch))


def test_near_lengths_go_together_before_older_ones() -> None:
    waiting = [Waiting(20), Waiting(90), Waiting(21), Waiting(88), Waiting(20), Waiting(19)]
    assert form_batch(waiting, LIMITS) == [0, 2, 4, 5]


def test_of_equal_lengths_the_oldest_go_first() -> None:
    waiting = [Waiting(20), *[Waiting(15)] * 9]
    assert form_batch(waiting, LIMITS) == [0, 1, 2, 3]


def test_oversize_item_runs_alone() -> None:
    assert form_batch([Waiting(500), Waiting(500), Waiting(1)], LIMITS) == [0]


def test_oversize_item_joins_no_other() -> None:
    assert form_batch([Waiting(50), Waiting(101), Waiting(50)], LIMITS) == [0, 2]


def test_short_item_stays_out_of_a_long_batch() -> None:
    few = BatchLimits(max_batch_size=8, max_batch_tokens=10_000, free_padding_tokens=32)
    assert form_batch([Waiting(400), Waiting(10), Waiting(390)], few) == [0, 2]


def test_one_very_long_item_does_not_pad_many_short_ones() -> None:
    few = BatchLimits(max_batch_size=8, max_batch_tokens=10_000, free_padding_tokens=32)
    assert form_batch([*[Waiting(20)] * 4, Waiting(30)], few) == [0, 1, 2, 3]


def test_mixed_lengths_waste_less_than_a_fifth_where_arrival_order_wastes_half() -> None:
    lengths = [13, 118, 40, 77, 25, 96, 60, 19, 110, 33] * 6
    limits = BatchLimits(max_batch_size=8, max_batch_tokens=1024)
    waiting = [Waiting(length) for length in lengths]
    by_length = sum(padded_tokens([waiting[position] for position in batch]) for batch in serve_all(waiting, limits))
    bounds = [*range(0, len(waiting), 8), len(waiting)]
    by_arrival = sum(padded_tokens(waiting[start:end]) for start, end in pairwise(bounds))
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
