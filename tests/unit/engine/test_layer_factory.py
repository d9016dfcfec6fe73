"""Slices of layers with LoRA updates compute what slices of a merged model compute."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import nn

from gliner_bento.adapters.adapter import LowRank
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.int8 import multiplies_int8
from gliner_bento.engine.layers.lora import AdaptedLinear, on_slot
from gliner_bento.engine.layers.rows import SlotRows

SLOTS = 3
INPUTS, OUTPUTS = 24, 18
CPU = torch.device("cpu")

Pieces = Callable[[nn.Linear], "WeightSlice | nn.Linear"]
PIECES: dict[str, Pieces] = {
    "whole": lambda layer: layer,
    "outputs": lambda layer: WeightSlice(layer, outputs=slice(4, 12)),
    "inputs": lambda layer: WeightSlice(layer, inputs=slice(8, None)),
    "inputs and outputs": lambda layer: WeightSlice(layer, outputs=slice(None, 5), inputs=slice(3, 20)),
    "scaled": lambda layer: WeightSlice(layer, outputs=slice(6, None), scale=-2.5),
    "without bias": lambda layer: WeightSlice(layer, biased=False, scale=0.5),
    "transposed": lambda layer: WeightSlice(layer, "transposed"),
    "transposed, of some inputs": lambda layer: WeightSlice(layer, "transposed", inputs=slice(5, 16)),
    "bias": lambda layer: WeightSlice(layer, "bias"),
}


pytestmark = pytest.mark.usefixtures("no_gradients")


class Block(nn.Module):
    """Three linear layers, torch's attention, and other modules."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, INPUTS)
        self.left = nn.Linear(INPUTS, OUTPUTS)
        self.middle = nn.Linear(INPUTS, 7, bias=False)
        self.right = nn.Linear(INPUTS, OUTPUTS)
        self.attention = nn.MultiheadAttention(INPUTS, 2, batch_first=True)
        self.out = nn.Sequential(nn.Linear(INPUTS, OUTPUTS), nn.ReLU(), nn.Sequential(nn.Linear(OUTPUTS, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended: torch.Tensor = self.attention(x, x, x)[0]
        y: torch.Tensor = self.out(x + attended)
        return y


def block(seed: int = 0) -> Block:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Block().eval()


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def low_rank(layer: nn.Linear, seed: int, *, rank: int = 3, biased: bool = True) -> LowRank:
    """As strong as the layer itself."""
    a, b = drawn(seed, rank, layer.in_features), drawn(seed + 1, layer.out_features, rank)
    return LowRank(a / layer.in_features**0.5, b / rank**0.5, drawn(seed + 2, layer.out_features) if biased else None)


def merged(module: nn.Module, updates: Mapping[str, LowRank]) -> nn.Module:
    """A copy with these updates in its weights."""
    changed = copy.deepcopy(module)
    for name, update in updates.items():
        layer = changed.get_submodule(name)
        layer.weight = nn.Parameter(layer.weight + update.b @ update.a)
        if update.bias is not None:
            layer.bias = nn.Parameter(layer.bias + update.bias)
    return changed


def place(layers: LayerFactory, slot: int, updates: Mapping[str, LowRank]) -> None:
    for sink in layers.sinks:
        sink.write(slot, sink.prepare(updates))


def rows_of_slots(*counts: int) -> SlotRows:
    return SlotRows(counts, CPU)


def assert_pieces(
    given: Callable[[Block], Sequence[WeightSlice | nn.Linear]], adapters: Sequence[Mapping[str, LowRank]]
) -> None:
    """One layer of these slices, in a batch with rows of all adapters and the base model."""
    model = block()
    layers = LayerFactory(model, slots=SLOTS)
    ours = layers.linear(*given(model), activation="relu")
    models = [merged(model, updates) for updates in adapters]
    for slot, updates in enumerate(adapters):
        place(layers, slot, updates)
    exact = [LayerFactory(one).linear(*given(one), activation="relu") for one in (*models, model)]
    width = sum(
        part.weight.shape[1] if isinstance(part, WeightSlice) else part.in_features for part in given(model)[:1]
    )
    x = drawn(9, 4 * (len(adapters) + 1), width)
    counts = [4] * len(adapters) + [0] * (SLOTS - len(adapters))
    expected = torch.cat([layer(rows) for layer, rows in zip(exact, x.split(4), strict=True)])
    torch.testing.assert_close(ours(x, rows_of_slots(*counts)), expected, atol=2e-5, rtol=2e-5)
    for layer, base, rows in zip(exact, [exact[-1]] * len(adapters), x.split(4), strict=False):
        assert not torch.allclose(layer(rows), base(rows), atol=1e-2)


@pytest.mark.parametrize(
    ("kind", "biased"), [(kind, biased) for kind in PIECES for biased in (True, False) if biased or kind != "bias"]
)
def test_a_slice_is_updated_like_its_layer(kind: str, biased: bool) -> None:
    adapters = [{"left": low_rank(block().left, seed, rank=1 + seed, biased=biased)} for seed in (1, 20)]
    assert_pieces(lambda model: [PIECES[kind](model.left)], adapters)


def test_stacked_layers_are_updated_separately() -> None:
    model = block()
    of = {name: low_rank(model.get_submodule(name), seed) for seed, name in enumerate(("left", "right"), start=30)}
    of["middle"] = low_rank(model.middle, 50, rank=9, biased=False)
    for names in (("left",), ("middle",), ("right",), ("middle", "right"), ("left", "middle", "right")):
        adapters = [{name: of[name] for name in names}, {"middle": of["middle"]}]
        assert_pieces(lambda model: [model.left, model.middle, model.right], adapters)


def test_stacked_slices_of_one_layer_are_updated_together() -> None:
    def given(model: Block) -> list[WeightSlice | nn.Linear]:
        return [
            WeightSlice(model.left, outputs=slice(12, 18), scale=0.25),
            model.middle,
            WeightSlice(model.left, outputs=slice(0, 12), biased=False),
        ]

    model = block()
    both = {"left": low_rank(model.left, 3, rank=20), "middle": low_rank(model.middle, 4, biased=False)}
    assert_pieces(given, [{"left": low_rank(model.left, 1)}, both])


def test_one_update_reaches_every_layer_made_of_its_weights() -> None:
    model = block()
    layers = LayerFactory(model, slots=SLOTS)
    made = [layers.linear(WeightSlice(model.left, inputs=part)) for part in (slice(None, 8), slice(8, None))]
    update = low_rank(model.left, 5)
    place(layers, 1, {"left": update})
    x, slot_rows = drawn(6, 5, INPUTS), rows_of_slots(0, 5, 0)
    changed = merged(model, {"left": update}).left
    y = made[0](x[:, :8].contiguous(), slot_rows) + made[1](x[:, 8:].contiguous(), slot_rows)
    torch.testing.assert_close(y, changed(x) + changed.bias, atol=2e-5, rtol=2e-5)


@pytest.mark.skipif(not multiplies_int8(), reason="needs a CPU with VNNI or AMX")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_layers_are_updated_in_the_models_dtype(dtype: torch.dtype) -> None:
    """An int8 layer is updated in the model's dtype."""
    model = block().to(dtype)
    layers = LayerFactory(model, slots=SLOTS, int8=True)
    encoder, other = layers.encoder_linear(model.left), layers.linear(model.left)
    encoder(drawn(7, 500, INPUTS).to(dtype))
    assert None not in layers.quantize().values()
    update = low_rank(model.left, 5)
    place(layers, 0, {"left": update})
    prepared = layers.sinks[0].prepare({"left": update})
    assert (prepared.a.dtype, prepared.b.dtype, prepared.bias.dtype) == (dtype, dtype, dtype)
    x = drawn(6, 40, INPUTS).to(dtype)
    exact = merged(block().float(), {"left": update}).left(x.float())
    for layer in (encoder, other):
        y = layer(x, rows_of_slots(40, 0, 0))
        assert y.dtype == dtype
        assert (y.float() - exact).norm() / exact.norm() < 0.02
    assert not torch.equal(encoder(x), other(x))


@pytest.mark.parametrize(
    ("content", "update"),
    [
        ("weight", {}),
        ("weight", {"right": low_rank(block().right, 1)}),
        ("bias", {"left": low_rank(block().left, 1, biased=False)}),
    ],
)
def test_an_adapter_that_does_not_change_a_layer_takes_no_slot_of_it(content, update: Mapping[str, LowRank]) -> None:
    model = block()
    layers = LayerFactory(model, slots=SLOTS)
    ours = layers.linear(WeightSlice(model.left, content))
    place(layers, 0, {"left": low_rank(model.left, 7)})
    place(layers, 0, update)
    assert layers.sinks[0].prepare(update) is None
    x = drawn(6, 5, OUTPUTS if content == "bias" else INPUTS)
    assert torch.equal(ours(x, rows_of_slots(5, 0, 0)), ours(x))


# Modules of other libraries


def test_a_module_of_another_library_is_adapted_in_place() -> None:
    model = block()
    layers = LayerFactory(model, slots=SLOTS)
    untouched = copy.deepcopy(model)
    layers.adapt(model)
    first, last = untouched.out[0], untouched.out[2][0]
    adapters = [
        {"out.0": low_rank(first, 1), "out.2.0": low_rank(last, 2, rank=11)},
        {"out.2.0": low_rank(last, 3, biased=False)},
    ]
    for slot, updates in enumerate(adapters):
        place(layers, slot, updates)
    x = drawn(6, 2, 5, INPUTS)
    for slot, updates in enumerate(adapters):
        with on_slot(slot):
            exact = merged(untouched, updates)(x)
            torch.testing.assert_close(model(x), exact, atol=2e-5, rtol=2e-5)
            assert not torch.allclose(exact, untouched(x), atol=1e-2)
    for slot in (None, 2):
        with on_slot(slot):
            assert torch.equal(model(x), untouched(x))


def test_a_module_is_adapted_once() -> None:
    model = block()
    layers = LayerFactory(model, slots=SLOTS)
    layers.adapt(model)
    sinks = len(layers.sinks)
    layers.adapt(model)
    assert len(layers.sinks) == sinks == 5
    assert not any(
        isinstance(module.layer, AdaptedLinear) for module in model.modules() if type(module) is AdaptedLinear
    )


def test_torchs_attention_is_not_adapted() -> None:
    """It does not call its layers: adapting them would have no effect."""
    model = block()
    attention, out_proj = model.attention, model.attention.out_proj
    layers = LayerFactory(model, slots=SLOTS)
    layers.adapt(model)
    assert model.attention is attention
    assert model.attention.out_proj is out_proj
    model.attention.mine = nn.Linear(INPUTS, INPUTS)
    LayerFactory(model, slots=SLOTS).adapt(model.attention)
    assert type(model.attention.mine) is nn.Linear


def test_a_single_child_may_be_adapted() -> None:
    model = block()
    layers = LayerFactory(model, slots=SLOTS)
    for attribute in ("left", "words", "attention"):
        layers.adapt_child(model, attribute)
    layers.adapt_child(model.attention, "out_proj")  # a subclass of nn.Linear, which may behave differently
    assert [type(part) for part in (model.left, model.words, model.right)] == [AdaptedLinear, nn.Embedding, nn.Linear]
    assert [name for name, layer in layers.describe().items() if isinstance(layer, tuple)] == ["left"]


# Which layers adapters may change


def test_layers_are_described_by_their_sizes_or_a_reason() -> None:
    model = block()
    layers = LayerFactory(model, slots=SLOTS)
    layers.linear(model.left)
    layers.linear(WeightSlice(model.middle, "transposed"))
    layers.encoder_linear(WeightSlice(model.right, "bias"))
    layers.adapt(model.out)
    described = layers.describe()
    unused = "a layer that inference does not use, or does not use as a linear layer"
    assert described == {
        "words": "not a linear layer: Embedding",
        "left": (INPUTS, OUTPUTS),
        "middle": (INPUTS, 7),
        "right": (INPUTS, OUTPUTS),
        "attention": "not a linear layer: MultiheadAttention",
        "attention.out_proj": unused,
        "out": "not a linear layer: Sequential",
        "out.0": (INPUTS, OUTPUTS),
        "out.1": "not a linear layer: ReLU",
        "out.2": "not a linear layer: Sequential",
        "out.2.0": (OUTPUTS, 4),
    }
    fresh = block()
    assert LayerFactory(fresh, slots=SLOTS).describe()["left"] == unused
    assert layers.name_of(model.attention) == "attention"


def test_without_slots_nothing_is_adapted_or_recorded() -> None:
    model = block()
    layers = LayerFactory(model)
    ours = layers.linear(model.left)
    layers.adapt(model)
    layers.adapt_child(model, "right")
    assert layers.sinks == []
    assert not any(isinstance(module, AdaptedLinear) for module in model.modules())
    assert not any(isinstance(layer, tuple) for layer in layers.describe().values())
    x = drawn(6, 5, INPUTS)
    assert torch.equal(ours(x, rows_of_slots(5, 0, 0)), ours(x))
