"""Layers add LoRA updates: ours to the rows of each slot, adapted modules of other libraries to those of one slot."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from drawn_updates import (
    DTYPES,
    PATIENCE_S,
    SLOTS,
    delta,
    drawn,
    row_by_row,
    rows_of_slots,
    some_update,
    spread,
)
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.layers.linear import Activation, Linear
from gliner_bento.engine.layers.lora import AdaptedLinear, LoraUpdate, SlotUpdates, on_slot

pytestmark = pytest.mark.usefixtures("inference")

ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda y: y,
    "relu": F.relu,
    "gelu": F.gelu,
}


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
def test_rows_of_a_slot_do_not_depend_on_those_of_other_slots(
    activation: Activation, dtype: torch.dtype, inference: str
) -> None:
    """Bit for bit, also those of slot 1, which has no update."""
    if inference != "on a CPU":
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
