"""LoRA updates of many adapters in one batch are those of a loop over rows, in our layers and in adapted modules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.layers.linear import Activation, Linear
from gliner_bento.engine.layers.lora import AdaptedLinear, LoraUpdate, SlotUpdates, on_slot
from gliner_bento.engine.layers.rows import SlotRows, TextSlots
from gliner_bento.errors import ScoresNotFinite

CPU = torch.device("cpu")
PATIENCE_S = 60.0
SLOTS = 4
INPUTS = (1, 3, 8, 12)
OUTPUTS = (1, 3, 8, 17)
RANKS = st.integers(1, 40)
DTYPES = [torch.float32, torch.bfloat16]
ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda y: y,
    "relu": F.relu,
    "gelu": F.gelu,
}


@pytest.fixture(autouse=True, params=["as on a CPU", "as on a GPU"])
def _inference(request):
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        if request.param == "as on a GPU":
            patch.setattr(SlotUpdates, "_add_by_slot", SlotUpdates._add_grouped)
        yield


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(seed: int, *shape: int, often: float = 0.6) -> torch.Tensor:
    """-1, 0 and 1: sums of few products are exact in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
    return signs * (torch.rand(shape, generator=generator) < often)


def whole_update(seed: int, inputs: int, rank: int, outputs: int, *, biased: bool, dtype=torch.float32) -> LoraUpdate:
    bias = whole(seed + 2, outputs, often=1.0).to(dtype) if biased else None
    b = whole(seed + 1, rank, outputs, often=min(0.6, 6 / rank))
    return LoraUpdate(whole(seed, inputs, rank).to(dtype), b.to(dtype), bias)


def some_update(seed: int, inputs: int, rank: int, outputs: int, *, biased: bool = True) -> LoraUpdate:
    """As strong as a layer itself."""
    bias = drawn(seed + 2, outputs) if biased else None
    return LoraUpdate(drawn(seed, inputs, rank) / inputs**0.5, drawn(seed + 1, rank, outputs) / rank**0.5, bias)


def delta(x: torch.Tensor, update: LoraUpdate | None) -> torch.Tensor | float:
    """What an update adds, computed by definition."""
    if update is None:
        return 0.0
    y = x.double() @ update.a.double() @ update.b.double()
    return y if update.bias is None else y + update.bias.double()


def row_by_row(
    y: torch.Tensor, x: torch.Tensor, slots: Sequence[int | None], updates: dict[int, LoraUpdate | None]
) -> torch.Tensor:
    """`y` plus the updates of the rows of `x`, which belong to these slots."""
    added = [
        of_y.double() + delta(of_x, None if slot is None else updates.get(slot))
        for of_y, of_x, slot in zip(y, x, slots, strict=True)
    ]
    return torch.stack(added) if added else y.double()


def rows_of_slots(counts: Sequence[int]) -> SlotRows:
    """The number of rows of each slot."""
    return SlotRows(tuple(counts), CPU)


def spread(counts: Sequence[int], base: int = 0) -> list[int | None]:
    """The slot of each row, those of the base model last."""
    return [slot for slot, count in enumerate(counts) for _ in range(count)] + [None] * base


# Rows and slots


def test_rows_belong_to_the_slots_of_their_texts() -> None:
    rows = TextSlots((1, 1, 3, None), 5, CPU)
    slot_rows = rows.slot_rows([2, 3, 4, 6])
    assert slot_rows.of_slots == (0, 5, 0, 4, 0)
    assert slot_rows.total == 9
    assert slot_rows.slots == {1, 3}
    assert slot_rows.ends.tolist() == [0, 5, 5, 9, 9]
    assert slot_rows.slot_of_row.tolist() == [1] * 5 + [3] * 4
    assert rows.slot_rows([0, 0, 0, 6]).slots == frozenset()


def test_rows_of_one_text_have_one_slot() -> None:
    rows = TextSlots((0, 2, None), 3, CPU)
    slot_rows = [rows.slot_rows_of(number, 7) for number in range(3)]
    assert [one and one.of_slots for one in slot_rows] == [(7, 0, 0), (0, 0, 7), None]


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
def test_an_overflowing_adapter_does_not_change_others(part: str) -> None:
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
    if SlotUpdates._add_by_slot is not SlotUpdates._add_grouped:
        with pytest.raises(ScoresNotFinite):  # on a CPU the batch fails, and is halved until its items are alone
            updates.add(torch.zeros(6, 8), x, slot_rows)
        return
    y = updates.add(torch.zeros(6, 8), x, slot_rows)
    assert torch.equal(y[3:].double(), delta(x[3:], good))


def test_an_update_knows_its_size_and_moves() -> None:
    update = some_update(0, 6, 2, 5)
    assert update.size_bytes == 4 * (6 * 2 + 2 * 5 + 5)
    assert some_update(0, 6, 2, 5, biased=False).size_bytes == 4 * (6 * 2 + 2 * 5)
    moved = [update.to(torch.device("meta")), some_update(0, 6, 2, 5, biased=False).to(torch.device("meta"))]
    assert [one.a.device.type == one.b.device.type == "meta" for one in moved] == [True, True]
    assert moved[0].bias is not None
    assert (moved[0].bias.device.type, moved[1].bias) == ("meta", None)


# Layers with updates


def updated(
    outputs: int, dtype: torch.dtype = torch.float32, *, inputs: int = 48
) -> tuple[SlotUpdates, dict[int, LoraUpdate]]:
    """Three of four slots change a layer, one of them without a bias."""
    there = {slot: some_update(10 * slot, inputs, 3 + 6 * slot, outputs, biased=slot != 2) for slot in (0, 2, 3)}
    there = {
        slot: LoraUpdate(one.a.to(dtype), one.b.to(dtype), None if one.bias is None else one.bias.to(dtype))
        for slot, one in there.items()
    }
    updates = SlotUpdates(inputs, outputs, SLOTS, torch.empty(0, dtype=dtype))
    for slot, update in there.items():
        updates.write(slot, update)
    return updates, there


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("outputs", [40, 1])
@pytest.mark.parametrize("counts", [(5, 4, 0, 7), (0, 0, 3, 0), (300, 200, 150, 90)], ids=str)
def test_a_layer_adds_updates_before_its_activation(
    activation: Activation, dtype: torch.dtype, outputs: int, counts: tuple[int, ...]
) -> None:
    weight, bias = drawn(1, outputs, 48).to(dtype) / 7, drawn(2, outputs).to(dtype)
    updates, there = updated(outputs, dtype)
    plain = Linear(weight, bias, activation=activation)
    layer = Linear(weight, bias, activation=activation, updates=updates)
    slots = spread(counts, base=30)
    x = drawn(3, len(slots), 48).to(dtype)
    slot_rows = rows_of_slots(counts)
    y = layer(x, slot_rows)
    exact = row_by_row(F.linear(x.double(), weight.double(), bias.double()), x, slots, there)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), ACTIVATIONS[activation](exact), atol=tolerance, rtol=tolerance)
    assert torch.equal(y[slot_rows.total :], plain(x[slot_rows.total :]))
    assert torch.equal(layer(x), plain(x))


def test_a_layer_whose_rows_all_have_adapters() -> None:
    updates, there = updated(40)
    weight, x = drawn(1, 40, 48) / 7, drawn(3, 9, 48)
    y = Linear(weight, updates=updates)(x, rows_of_slots([4, 0, 5, 0]))
    exact = row_by_row(F.linear(x.double(), weight.double()), x, spread([4, 0, 5]), there)
    torch.testing.assert_close(y.double(), exact, atol=1e-5, rtol=1e-5)


def test_rows_without_updates_equal_the_base_models_bit_for_bit() -> None:
    weight, x, residual = drawn(1, 40, 48), drawn(3, 600, 48), drawn(4, 600, 40)
    plain = Linear(weight, activation="gelu")
    nobody, of_slot_1 = rows_of_slots([0, 0, 0, 0]), rows_of_slots([0, 600, 0, 0])
    for updates in (updated(40)[0], SlotUpdates(48, 40, SLOTS, weight)):
        layer = Linear(weight, activation="gelu", updates=updates)
        for slot_rows in (nobody, of_slot_1):
            assert torch.equal(layer(x, slot_rows), plain(x))
            assert torch.equal(layer.plus(x, residual, slot_rows), plain.plus(x, residual))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rows_of_a_slot_do_not_depend_on_those_of_other_slots(activation: Activation, dtype: torch.dtype) -> None:
    """Bit for bit, also those of slot 1, which has no update."""
    if SlotUpdates._add_by_slot is SlotUpdates._add_grouped:
        pytest.skip("for a CPU")
    weight, counts = drawn(1, 40, 48).to(dtype) / 7, (70, 30, 5, 64)
    layer = Linear(weight, activation=activation, updates=updated(40, dtype)[0], threads=(1,))
    x = drawn(3, sum(counts) + 20, 48).to(dtype)
    y, first = layer(x, rows_of_slots(counts)), 0
    for slot, count in enumerate(counts):
        for some in (1, count):
            own = rows_of_slots([some if slot == number else 0 for number in range(len(counts))])
            assert torch.equal(layer(x[first : first + some], own), y[first : first + some])
        first += count
    assert torch.equal(layer(x[first:], rows_of_slots([0, 0, 0, 0])), y[first:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_int8_layers_add_updates_in_full_precision(activation: Activation, dtype: torch.dtype) -> None:
    weight, bias = drawn(1, 40, 48).to(dtype) / 7, drawn(2, 40).to(dtype)
    updates, there = updated(40, dtype)
    slots = spread((300, 250, 20, 7), base=30)
    x = drawn(3, len(slots), 48).to(dtype)
    rounded = Linear(weight, bias, int8=True)
    y = Linear(weight, bias, int8=True, activation=activation, updates=updates)(x, rows_of_slots((300, 250, 20, 7)))
    exact = ACTIVATIONS[activation](row_by_row(rounded(x), x, slots, there))
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(y.double(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("counts", [(5, 4, 0, 7), (300, 200, 150, 90)], ids=str)
def test_plus_adds_updates_too(dtype: torch.dtype, counts: tuple[int, ...], int8: bool) -> None:
    weight, bias = drawn(1, 40, 48).to(dtype) / 7, drawn(2, 40).to(dtype)
    updates, there = updated(40, dtype)
    plain, layer = Linear(weight, bias, int8=int8), Linear(weight, bias, int8=int8, updates=updates)
    slots, slot_rows = spread(counts, base=30), rows_of_slots(counts)
    x, residual = drawn(3, len(slots), 48).to(dtype), drawn(4, len(slots), 40).to(dtype)
    before = residual.clone()
    y = layer.plus(x, residual, slot_rows)
    exact = row_by_row(plain.plus(x, residual), x, slots, there)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(y.double(), exact, atol=tolerance, rtol=tolerance)
    assert torch.equal(y[slot_rows.total :], plain.plus(x, residual)[slot_rows.total :])
    assert torch.equal(residual, before)


# Modules of other libraries


def adapted(seed: int = 0) -> tuple[AdaptedLinear, nn.Linear, dict[int, LoraUpdate]]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = nn.Linear(48, 40)
    updates, there = updated(40)
    return AdaptedLinear(layer, updates), layer, there


def assert_of_slot(y: torch.Tensor, x: torch.Tensor, layer: nn.Linear, update: LoraUpdate | None) -> None:
    if update is None:
        assert torch.equal(y, layer(x))
    else:
        torch.testing.assert_close(y.double(), layer(x).double() + delta(x, update), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(7, 48), (2, 5, 48), (48,)])
def test_all_inputs_of_an_adapted_layer_belong_to_one_slot(shape: tuple[int, ...]) -> None:
    module, layer, there = adapted()
    x = drawn(5, *shape)
    for slot in (0, 1, 2, 3, None):
        with on_slot(slot):
            assert_of_slot(module(x), x, layer, there.get(slot))  # type: ignore[arg-type]
    assert torch.equal(module(x), layer(x))


def test_on_slot_nests_and_ends_with_an_exception() -> None:
    module, layer, there = adapted()
    x = drawn(5, 3, 48)
    with on_slot(0):
        with on_slot(2), on_slot(None):
            assert_of_slot(module(x), x, layer, None)
        assert_of_slot(module(x), x, layer, there[0])
        with pytest.raises(ArithmeticError), on_slot(3):
            raise ArithmeticError
        assert_of_slot(module(x), x, layer, there[0])
    assert_of_slot(module(x), x, layer, None)


def test_on_slot_is_per_thread() -> None:
    module, layer, there = adapted()
    x = drawn(5, 3, 48)
    all_inside = threading.Barrier(4)
    answers: dict[int | None, torch.Tensor] = {}

    def lane(slot: int | None) -> None:
        with torch.inference_mode(), on_slot(slot):
            all_inside.wait(PATIENCE_S)
            answers[slot] = module(x)
            all_inside.wait(PATIENCE_S)

    threads = [threading.Thread(target=lane, args=(slot,)) for slot in (0, 2, 3)]
    for thread in threads:
        thread.start()
    all_inside.wait(PATIENCE_S)
    answers[None] = module(x)
    all_inside.wait(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
    for slot in (0, 2, 3, None):
        assert_of_slot(answers[slot], x, layer, there.get(slot))  # type: ignore[arg-type]


def test_an_adapted_layer_exposes_weight_and_bias() -> None:
    module, layer, _ = adapted()
    assert module.weight is layer.weight
    assert module.bias is layer.bias
