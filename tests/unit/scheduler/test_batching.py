from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from views import view

from gliner_bento.engine.base import SlotState
from gliner_bento.scheduler.batching import NO_ADAPTERS, BatchLimits, batch_cost, form_batch, is_full


@dataclass(frozen=True)
class Waiting:
    cost: int
    adapter: str | None = None
    bypassed: int = 0


@dataclass(frozen=True)
class Scene:
    """Waiting items, and the state of the device's slots. coming: items that arrive later."""

    waiting: Sequence[Waiting]
    slots: SlotState = NO_ADAPTERS
    lanes: int = 1
    coming: Sequence[Waiting] = ()

    def form(self, limits: BatchLimits, packs: bool, waiting: Sequence[Waiting] | None = None) -> list[int]:
        """`form_batch` of the waiting items, or of `waiting`."""
        waiting = self.waiting if waiting is None else waiting
        return form_batch(waiting, limits, packs=packs, slots=self.slots, lanes=self.lanes)

    def may_share(self, batch: Iterable[Waiting]) -> bool:
        """Whether these items' adapters may be in one batch."""
        adapters = {item.adapter for item in batch} - {None}
        new = adapters - self.slots.in_use
        return len(adapters) <= self.slots.slots and len(new) <= max(1, self.slots.slots // self.lanes)


LIMITS = view(BatchLimits, max_batch_size=4, max_batch_tokens=100)


@st.composite
def scenes(draw: st.DrawFn, most_coming: int = 0) -> Scene:
    """Items have adapters only where there are slots; those that arrive later have resident ones."""
    slots = draw(st.integers(0, 3))
    resident = draw(st.frozensets(st.sampled_from("abcd"), max_size=slots))
    in_use = frozenset(adapter for adapter in sorted(resident) if draw(st.booleans()))
    slot_state = SlotState(slots, resident, in_use)
    adapters = st.none() | st.sampled_from("abcd") if slots else st.none()
    cost = st.integers(10, 12) | st.integers(1, 120)  # many could share a batch
    items = st.builds(Waiting, cost=cost, adapter=adapters, bypassed=st.integers(0, 5))
    ready = st.sampled_from([None, *sorted(resident)])
    later = st.builds(Waiting, cost=cost, adapter=ready)
    return Scene(
        draw(st.lists(items, min_size=1, max_size=40)),
        slot_state,
        draw(st.integers(1, 3)),
        draw(st.lists(later, max_size=most_coming)),
    )


limits = st.builds(
    BatchLimits,
    max_batch_size=st.integers(1, 10),
    max_batch_tokens=st.integers(1, 400),
    batch_lookahead=st.integers(1, 40),
    max_bypasses=st.integers(0, 6),
    free_padding_tokens=st.integers(0, 60),
)


both_kinds = pytest.mark.parametrize("packs", [False, True], ids=["padded", "packed"])


def cost_of(batch: list[Waiting], packs: bool = False) -> int:
    return batch_cost([item.cost for item in batch], packs=packs)


def serve_all(scene: Scene, limits: BatchLimits, packs: bool = False) -> list[list[int]]:
    """Form batches until nothing waits; each as positions in the scene. Counts bypasses as the queue does.

    For each item that is served another one arrives, while there are any.
    """
    arrivals = enumerate([*scene.waiting, *scene.coming])
    rest = list(islice(arrivals, len(scene.waiting)))
    batches = []
    while rest:
        taken = scene.form(limits, packs, [item for _, item in rest])
        batches.append([rest[index][0] for index in taken])
        rest = [
            (position, replace(item, bypassed=item.bypassed + (index < taken[-1])))
            for index, (position, item) in enumerate(rest)
            if index not in taken
        ] + list(islice(arrivals, len(taken)))
    return batches


@both_kinds
@given(scene=scenes(), limits=limits)
def test_batch_keeps_every_limit(packs: bool, scene: Scene, limits: BatchLimits) -> None:
    indices = scene.form(limits, packs)
    batch = [scene.waiting[index] for index in indices]
    assert len(batch) <= limits.max_batch_size
    assert len(batch) == 1 or cost_of(batch, packs) <= limits.max_batch_tokens
    assert max(indices) < limits.batch_lookahead
    assert scene.may_share(batch)


@both_kinds
@given(scene=scenes(), limits=limits)
def test_oldest_is_in_and_no_item_twice_in_order_of_age(packs: bool, scene: Scene, limits: BatchLimits) -> None:
    indices = scene.form(limits, packs)
    assert indices[0] == 0
    assert indices == sorted(set(indices))


@given(scenes(), limits)
def test_batch_never_costs_more_than_its_items_one_by_one(scene: Scene, limits: BatchLimits) -> None:
    batch = [scene.waiting[index] for index in scene.form(limits, packs=False)]
    per_batch = limits.free_padding_tokens
    assert cost_of(batch) + per_batch <= sum(item.cost + per_batch for item in batch)


@given(scenes(), limits)
def test_batch_stops_only_where_no_item_within_the_lookahead_could_join(scene: Scene, limits: BatchLimits) -> None:
    generous_limits = replace(limits, max_bypasses=10**6)
    indices = scene.form(generous_limits, packs=False)
    batch = [scene.waiting[index] for index in indices]
    if len(batch) == generous_limits.max_batch_size:
        return
    for index, item in enumerate(scene.waiting[: generous_limits.batch_lookahead]):
        if index not in indices and scene.may_share([*batch, item]):
            grown = cost_of([*batch, item])
            extra_padding = grown - cost_of(batch) - item.cost
            assert grown > generous_limits.max_batch_tokens or extra_padding > generous_limits.free_padding_tokens


@both_kinds
@given(scene=scenes(), limits=limits)
def test_choice_is_deterministic_and_depends_on_nothing_beyond_the_lookahead(
    packs: bool, scene: Scene, limits: BatchLimits
) -> None:
    assert scene.form(limits, packs) == scene.form(limits, packs, scene.waiting[: limits.batch_lookahead])


@both_kinds
@given(scene=scenes(), limits=limits)
def test_item_at_the_limit_is_not_bypassed(packs: bool, scene: Scene, limits: BatchLimits) -> None:
    indices = scene.form(limits, packs)
    bypassed = [scene.waiting[index] for index in range(indices[-1]) if index not in indices]
    assert all(item.bypassed < limits.max_bypasses for item in bypassed)


@both_kinds
@given(scene=scenes(most_coming=40), limits=limits)
def test_each_item_is_served_once_and_bypassed_at_most_so_often(packs: bool, scene: Scene, limits: BatchLimits) -> None:
    scene = replace(scene, waiting=[replace(item, bypassed=0) for item in scene.waiting])
    batches = serve_all(scene, limits, packs)
    items = len(scene.waiting) + len(scene.coming)
    assert sorted(position for batch in batches for position in batch) == list(range(items))
    turn = {position: number for number, batch in enumerate(batches) for position in batch}
    for position in range(items):
        bypasses = sum(batch[-1] > position for batch in batches[: turn[position]])
        assert bypasses <= min(limits.max_bypasses, limits.batch_lookahead - 1)


@pytest.mark.parametrize(
    ("packs", "slots", "coming", "batches"),
    [
        (False, 1, None, [[0, 7], [1, 8], [2, 9], [3], [4], [5], [6, 10]]),
        (True, 1, None, [[0, 7], [1, 8], [2, 9], [3], [4], [5], [6, 10]]),
        (True, 2, "here", [[0, 7], [1, 8], [2, 9], [3, 4], [5, 6]]),
    ],
)
def test_items_with_resident_adapters_starve_no_other_however_many_arrive(
    packs: bool, slots: int, coming: str | None, batches: list[list[int]]
) -> None:
    limits = view(BatchLimits, max_batch_size=2, max_batch_tokens=1000, max_bypasses=3)
    waiting = [Waiting(10, "here"), *[Waiting(10, adapter) for adapter in "abcdef"], *[Waiting(10, coming)] * 5]
    scene = Scene(waiting, SlotState(slots, frozenset({"here"})), coming=[Waiting(10, coming)] * 20)
    assert serve_all(scene, limits, packs)[: len(batches)] == batches


@given(scenes(), limits)
def test_batch_is_full_when_even_the_shortest_later_arrival_could_not_join(scene: Scene, limits: BatchLimits) -> None:
    batch = [scene.waiting[index] for index in scene.form(limits, packs=False)]
    generous = replace(limits, free_padding_tokens=10**6, max_bypasses=10**6, batch_lookahead=len(batch) + 1)
    grown = scene.form(generous, packs=False, waiting=[*batch, Waiting(1, batch[0].adapter)])
    out_of_sight = len(scene.waiting) >= limits.batch_lookahead
    assert is_full(batch, len(scene.waiting), limits, packs=False) == (out_of_sight or len(grown) == len(batch))


@given(scene=scenes(), limits=limits)
def test_packed_batch_leaves_out_only_items_that_could_not_join_in_their_turn(
    scene: Scene, limits: BatchLimits
) -> None:
    """Items with resident adapters have their turn first."""
    generous_limits = replace(limits, max_bypasses=10**6)
    indices = scene.form(generous_limits, packs=True)
    resident = {None, scene.waiting[0].adapter, *scene.slots.resident}
    turns = sorted(range(len(scene.waiting)), key=lambda index: (scene.waiting[index].adapter not in resident, index))
    for turn, index in enumerate(turns):
        if index not in indices and index < generous_limits.batch_lookahead:
            before = [scene.waiting[earlier] for earlier in turns[:turn] if earlier in indices]
            grown = [*before, scene.waiting[index]]
            too_many = len(before) == generous_limits.max_batch_size
            assert (
                too_many or cost_of(grown, packs=True) > generous_limits.max_batch_tokens or not scene.may_share(grown)
            )


@given(scene=scenes(), limits=limits)
def test_packed_batch_is_full_when_an_item_of_its_mean_cost_could_not_join(scene: Scene, limits: BatchLimits) -> None:
    batch = [scene.waiting[index] for index in scene.form(limits, packs=True)]
    mean = cost_of(batch, packs=True) / len(batch)
    no_room = len(batch) == limits.max_batch_size or (len(batch) + 1) * mean > limits.max_batch_tokens
    assert is_full(batch, len(scene.waiting), limits, packs=True) == (
        no_room or len(scene.waiting) >= limits.batch_lookahead
    )


def test_packed_items_go_in_order_and_a_smaller_one_fills_what_is_left() -> None:
    waiting = [Waiting(20), Waiting(70), Waiting(21), Waiting(88), Waiting(10), Waiting(1)]
    assert form_batch(waiting, LIMITS, packs=True) == [0, 1, 4]


def test_packed_items_with_resident_adapters_go_first() -> None:
    waiting = [Waiting(10), Waiting(10, "b"), Waiting(10, "a"), Waiting(10), Waiting(10, "a")]
    slots = SlotState(slots=2, resident=frozenset({"a"}))
    assert form_batch(waiting, LIMITS, packs=True, slots=slots) == [0, 2, 3, 4]


def test_adapter_of_the_oldest_counts_as_resident() -> None:
    waiting = [Waiting(10, "b"), Waiting(10, "c"), *[Waiting(10, "b")] * 3]
    assert form_batch(waiting, LIMITS, packs=True, slots=SlotState(slots=2)) == [0, 2, 3, 4]


@both_kinds
def test_oldest_runs_even_without_a_slot(packs: bool) -> None:
    waiting = [Waiting(10, "a"), Waiting(10, "b"), Waiting(10), Waiting(10, "a")]
    assert form_batch(waiting, LIMITS, packs=packs) == [0, 2, 3]


@both_kinds
@pytest.mark.parametrize(
    ("lanes", "in_use", "batch"),
    [
        (1, "", [0, 1, 2, 3, 5]),
        (2, "", [0, 1, 5]),
        (2, "c", [0, 1, 2, 5]),
        (2, "ab", [0, 1, 2, 3, 5]),
        (9, "", [0, 5]),
        (9, "bcde", [0, 1, 2, 3, 5]),
    ],
)
def test_lanes_share_the_slots_that_no_batch_uses(packs: bool, lanes: int, in_use: str, batch: list[int]) -> None:
    waiting = [*[Waiting(10, adapter) for adapter in "abcde"], Waiting(10)]
    limits = replace(LIMITS, max_batch_size=8)
    slots = SlotState(4, frozenset(in_use), frozenset(in_use))
    assert form_batch(waiting, limits, packs=packs, slots=slots, lanes=lanes) == batch


def test_near_lengths_go_together_before_older_ones() -> None:
    waiting = [Waiting(20), Waiting(90), Waiting(21), Waiting(88), Waiting(20), Waiting(19)]
    assert form_batch(waiting, LIMITS, packs=False) == [0, 2, 4, 5]


def test_of_equal_lengths_the_oldest_go_first() -> None:
    waiting = [Waiting(20), *[Waiting(15)] * 9]
    assert form_batch(waiting, LIMITS, packs=False) == [0, 1, 2, 3]


def test_oversize_item_gets_a_batch_of_its_own() -> None:
    assert form_batch([Waiting(500), Waiting(500), Waiting(1)], LIMITS, packs=False) == [0]


def test_oversize_item_joins_no_other() -> None:
    assert form_batch([Waiting(50), Waiting(101), Waiting(50)], LIMITS, packs=False) == [0, 2]


def test_short_item_stays_out_of_a_batch_of_long_ones() -> None:
    few = view(BatchLimits, max_batch_size=8, max_batch_tokens=10_000, free_padding_tokens=32)
    assert form_batch([Waiting(400), Waiting(10), Waiting(390)], few, packs=False) == [0, 2]


def test_one_very_long_item_does_not_pad_many_short_ones() -> None:
    few = view(BatchLimits, max_batch_size=8, max_batch_tokens=10_000, free_padding_tokens=32)
    assert form_batch([*[Waiting(20)] * 4, Waiting(30)], few, packs=False) == [0, 1, 2, 3]


def test_mixed_lengths_waste_less_than_a_fifth_where_arrival_order_wastes_half() -> None:
    lengths = [13, 118, 40, 77, 25, 96, 60, 19, 110, 33] * 6
    limits = view(BatchLimits, max_batch_size=8, max_batch_tokens=1024)
    waiting = [Waiting(length) for length in lengths]
    by_length = sum(cost_of([waiting[position] for position in batch]) for batch in serve_all(Scene(waiting), limits))
    bounds = [*range(0, len(waiting), 8), len(waiting)]
    by_arrival = sum(cost_of(waiting[start:end]) for start, end in pairwise(bounds))
    assert by_arrival > 1.8 * sum(lengths)
    assert by_length < 1.2 * sum(lengths)


@pytest.mark.parametrize("field", ["max_batch_size", "max_batch_tokens", "batch_lookahead"])
def test_limit_below_one_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least 1"):
        replace(LIMITS, **{field: 0})


@pytest.mark.parametrize("field", ["max_bypasses", "free_padding_tokens"])
def test_negative_allowance_is_refused(field: str) -> None:
    assert getattr(replace(LIMITS, **{field: 0}), field) == 0
    with pytest.raises(ValueError, match=f"{field} must be at least 0"):
        replace(LIMITS, **{field: -1})
