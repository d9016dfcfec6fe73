"""LoRA updates of many adapters in one batch are those of a loop over rows, also while slots are written."""

from __future__ import annotations

import threading

import pytest
import torch
from drawn_updates import (
    CPU,
    DTYPES,
    PATIENCE_S,
    SLOTS,
    delta,
    row_by_row,
    rows_of_slots,
    some_update,
    spread,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gliner_bento.engine.layers.lora import LoraUpdate, SlotUpdates
from gliner_bento.engine.layers.rows import TextRows, TextSlots
from gliner_bento.errors import ScoresNotFinite

pytestmark = pytest.mark.usefixtures("inference")

INPUTS = (1, 3, 8, 12)
OUTPUTS = (1, 3, 8, 17)
RANKS = st.integers(1, 40)


def whole(seed: int, *shape: int, often: float = 0.6) -> torch.Tensor:
    """-1, 0 and 1: sums of few products are exact in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
    return signs * (torch.rand(shape, generator=generator) < often)


def whole_update(seed: int, inputs: int, rank: int, outputs: int, *, biased: bool, dtype=torch.float32) -> LoraUpdate:
    bias = whole(seed + 2, outputs, often=1.0).to(dtype) if biased else None
    b = whole(seed + 1, rank, outputs, often=min(0.6, 6 / rank))
    return LoraUpdate(whole(seed, inputs, rank).to(dtype), b.to(dtype), bias)


# Rows and slots


def test_rows_belong_to_the_slots_of_their_texts() -> None:
    rows = TextSlots((1, 1, 3, None), 5, CPU)
    slot_rows = rows.slot_rows([2, 3, 4, 6])
    assert slot_rows.counts == (0, 5, 0, 4, 0)
    assert slot_rows.total == 9
    assert slot_rows.slots == {1, 3}
    assert slot_rows.ends.tolist() == [0, 5, 5, 9, 9]
    assert slot_rows.slot_of_row.tolist() == [1] * 5 + [3] * 4
    assert rows.slot_rows([0, 0, 0, 6]).slots == frozenset()


def test_rows_of_one_text_have_one_slot() -> None:
    rows = TextRows((1, 1, 1), TextSlots((0, 2, None), 3, CPU))
    slot_rows = [rows.slot_rows_of(number, 7) for number in range(3)]
    assert [one and one.counts for one in slot_rows] == [(7, 0, 0), (0, 0, 7), None]


def test_every_text_needs_a_number_of_rows() -> None:
    with pytest.raises(ValueError, match="argument"):
        TextSlots((0, None), 1, CPU).slot_rows([3])


# Updates


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[int, tuple[int, bool] | None]], list[list[int]]]:
    """A sequence of writes to slots, (rank, biased) or None; and the rows of each slot after each write."""
    puts = st.tuples(st.integers(0, SLOTS - 1), st.none() | st.tuples(RANKS, st.booleans()))
    history = draw(st.lists(puts, min_size=1, max_size=7))
    counts = st.lists(st.integers(0, 4), min_size=SLOTS, max_size=SLOTS)
    return history, [draw(counts) for _ in history]


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=60, deadline=None)
@given(history=histories(), inputs=st.sampled_from(INPUTS), outputs=st.sampled_from(OUTPUTS), seed=st.integers(0, 99))
def test_updates_equal_a_loop_over_rows(
    dtype: torch.dtype, history: tuple[list, list], inputs: int, outputs: int, seed: int
) -> None:
    updates = SlotUpdates(inputs, outputs, SLOTS, torch.empty(0, dtype=dtype))
    there: dict[int, LoraUpdate | None] = {}
    for number, ((slot, wanted), counts) in enumerate(zip(*history, strict=True)):
        there[slot] = wanted and whole_update(
            100 * seed + 10 * number, inputs, wanted[0], outputs, biased=wanted[1], dtype=dtype
        )
        updates.write(slot, there[slot])
        slot_rows, slots = rows_of_slots(counts), spread(counts)
        concerned = any(count and there.get(slot) for slot, count in enumerate(counts))
        assert updates.applies_to(slot_rows) == concerned
        if concerned:
            x, y = whole(number, len(slots), inputs).to(dtype), whole(number + 1, len(slots), outputs).to(dtype)
            expected = row_by_row(y, x, slots, there)
            assert updates.add(y, x, slot_rows) is y
            assert torch.equal(y.double(), expected)
        for each in range(SLOTS):
            held = updates.of(each)
            assert (held is None) == (there.get(each) is None)
            if held is not None:
                x = whole(each, 5, inputs).to(dtype)
                assert torch.equal(delta(x, held), delta(x, there[each]))
    assert updates.of(None) is None


def test_no_memory_is_allocated_before_the_first_update() -> None:
    updates = SlotUpdates(8, 8, SLOTS, torch.empty(0))
    updates.write(1, None)
    assert not updates.applies_to(rows_of_slots([1, 1, 1, 1]))
    assert updates.of(1) is None


def test_update_inputs_may_be_strided() -> None:
    updates = SlotUpdates(12, 8, SLOTS, torch.empty(0))
    updates.write(0, whole_update(0, 12, 4, 8, biased=True))
    wide = whole(1, 12, 24)
    for x in (wide[:, 12:], wide[::2, :12], wide[:, ::2], whole(2, 12, 6).T):
        y = updates.add(torch.zeros(len(x), 8), x, rows_of_slots([len(x), 0, 0, 0]))
        assert torch.equal(y.double(), row_by_row(torch.zeros(len(x), 8), x, [0] * len(x), {0: updates.of(0)}))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_running_batch_keeps_its_stacks_when_they_grow(dtype: torch.dtype) -> None:
    updates = SlotUpdates(8, 3, SLOTS, torch.empty(0, dtype=dtype))
    mine = whole_update(0, 8, 2, 3, biased=False, dtype=dtype)
    updates.write(0, mine)
    began = updates.of(0)
    for slot, rank in ((1, 9), (2, 40), (1, 17)):
        updates.write(slot, whole_update(rank, 8, rank, 3, biased=True, dtype=dtype))
    x = whole(3, 5, 8).to(dtype)
    assert began is not None
    for held in (began, updates.of(0)):
        assert torch.equal(delta(x, held), delta(x, mine))


def test_slots_are_written_while_batches_use_others() -> None:
    """One thread runs batches with slot 0; another writes slots 1 to 3, which grow."""
    over = threading.Event()
    faults: list[str] = []
    mine = whole_update(0, 8, 3, 8, biased=True)
    x, zeros = whole(1, 20, 8), torch.zeros(20, 8)
    expected = row_by_row(zeros, x, [0] * 20, {0: mine})
    layers: list[SlotUpdates] = []

    def batches() -> None:
        while not over.is_set():
            for updates in layers[-1:]:
                if not torch.equal(updates.add(zeros.clone(), x, rows_of_slots([20, 0, 0, 0])).double(), expected):
                    faults.append("another answer while slots were written")

    lane = threading.Thread(target=batches)
    lane.start()
    try:
        for layer in range(30):
            updates = SlotUpdates(8, 8, SLOTS, torch.empty(0))
            updates.write(0, mine)
            layers.append(updates)
            for rank in range(2, 41, 6):
                updates.write(1 + rank % 3, whole_update(layer, 8, rank, 8, biased=bool(rank % 4)))
    finally:
        over.set()
        lane.join(PATIENCE_S)
    assert not lane.is_alive()
    assert not faults


def test_a_failed_write_leaves_no_update() -> None:
    """An update with a bias of the wrong size; the slot's next adapter does not change the layer."""
    updates = SlotUpdates(8, 8, SLOTS, torch.empty(0))
    updates.write(1, whole_update(0, 8, 4, 8, biased=True))
    good = whole_update(1, 8, 4, 8, biased=True)
    with pytest.raises(RuntimeError):
        updates.write(0, LoraUpdate(good.a, good.b, torch.ones(5)))
    updates.write(0, None)
    x = whole(2, 4, 8)
    y = updates.add(torch.zeros(4, 8), x, rows_of_slots([2, 2, 0, 0]))
    assert not y[:2].any()
    assert y[2:].any()


@pytest.mark.parametrize("part", ["a", "b"])
def test_an_overflowing_adapter_does_not_change_others(part: str, inference: str) -> None:
    """Nor the next one in its slot, which has a lower rank."""
    updates, good = SlotUpdates(8, 8, SLOTS, torch.empty(0)), whole_update(0, 8, 2, 8, biased=True)
    overflowing = whole_update(1, 8, 20, 8, biased=True)
    getattr(overflowing, part).fill_(torch.inf)
    x, slot_rows = whole(2, 6, 8), rows_of_slots([3, 3, 0, 0])
    for slot, update in ((0, overflowing), (1, good), (0, good)):
        updates.write(slot, update)
    y = updates.add(torch.zeros(6, 8), x, slot_rows)
    assert torch.equal(y.double(), delta(x, good))
    updates.write(0, overflowing)
    if inference == "on a CPU":
        with pytest.raises(ScoresNotFinite):  # the batch fails, and is halved until its items are alone
            updates.add(torch.zeros(6, 8), x, slot_rows)
        return
    y = updates.add(torch.zeros(6, 8), x, slot_rows)
    assert torch.equal(y[3:].double(), delta(x[3:], good))
    assert not y[:3].isfinite().all(dim=1).any(), "the scores of its own rows must show it"


def test_an_update_moves() -> None:
    moved = [
        some_update(0, 6, 2, 5).to(torch.device("meta")),
        some_update(0, 6, 2, 5, biased=False).to(torch.device("meta")),
    ]
    assert [one.a.device.type == one.b.device.type == "meta" for one in moved] == [True, True]
    assert moved[0].bias is not None
    assert (moved[0].bias.device.type, moved[1].bias) == ("meta", None)
