"""A `Linear` computes what the layer that it was made from computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.int8 import InputScales, multiplies_int8
from gliner_bento.engine.layers.linear import Activation, Linear, feed_forward

ROWS = (1, 2, 7, 63, 64, 65, 511, 512, 513, 1500)
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda y: y,
    "relu": F.relu,
    "gelu": F.gelu,
}


pytestmark = pytest.mark.usefixtures("no_gradients")


def some_layer(seed: int = 0, *, inputs: int = 48, outputs: int = 40, bias: bool = True) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(inputs, outputs, bias=bias)


def made(*layers: nn.Linear, activation: Activation = "none", int8: bool = False) -> Linear:
    """int8: calibrated with rows of the standard normal distribution."""
    factory = LayerFactory(nn.ModuleList(layers), int8=int8)
    layer = factory.encoder_linear(*layers, activation=activation)
    if int8:
        layer(some_rows(500, layers[0].in_features, seed=9).to(layers[0].weight.dtype))
        assert None not in factory.quantize().values()
    return layer


needs_int8 = pytest.mark.skipif(not multiplies_int8(), reason="needs a CPU with VNNI or AMX")
INT8 = [False, pytest.param(True, marks=needs_int8)]


def some_rows(rows: int, width: int = 48, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def assert_close(ours: torch.Tensor, exact: torch.Tensor) -> None:
    """Close to float32, in steps of the dtype."""
    assert ours.shape == exact.shape
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours.float(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_computes_the_layer_and_its_activation(dtype: torch.dtype, activation: Activation, bias: bool) -> None:
    layer = some_layer(bias=bias).to(dtype)
    ours = made(layer, activation=activation)
    for rows in ROWS:
        x = some_rows(rows).to(dtype)
        y = F.linear(x.float(), layer.weight.float(), None if layer.bias is None else layer.bias.float())
        assert_close(ours(x), ACTIVATIONS[activation](y))
        assert ours(x).dtype == dtype


def test_gelu_is_the_exact_one() -> None:
    ours = Linear(torch.eye(4) * 2, activation="gelu")
    x = torch.linspace(-2, 2, 400).view(100, 4)
    error = (ours(x) - F.gelu(2 * x)).abs().max()
    assert error < 1e-6 < (F.gelu(2 * x, approximate="tanh") - F.gelu(2 * x)).abs().max()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_plus_adds_a_residual(dtype: torch.dtype, bias: bool) -> None:
    layer = some_layer(bias=bias).to(dtype)
    ours = made(layer)
    for rows in ROWS:
        x, residual = some_rows(rows).to(dtype), some_rows(rows, 40, seed=2).to(dtype)
        before = residual.clone()
        exact = F.linear(x.float(), layer.weight.float(), None if layer.bias is None else layer.bias.float())
        assert_close(ours.plus(x, residual), exact + residual.float())
        assert torch.equal(residual, before)


def test_inputs_may_be_strided() -> None:
    layer, wide = some_layer(), some_rows(20, 96)
    for x in (wide[:, 48:], wide[::2, :48], some_rows(48, 20).T):
        assert_close(made(layer)(x), F.linear(x, layer.weight, layer.bias))


def test_zero_rows_give_zero_rows() -> None:
    assert made(some_layer())(torch.empty(0, 48)).shape == (0, 40)


def test_outputs_of_stacked_layers_are_concatenated() -> None:
    layers = [some_layer(seed, outputs=outputs, bias=seed != 1) for seed, outputs in enumerate((8, 24, 16))]
    x = some_rows(30)
    assert_close(made(*layers)(x), torch.cat([layer(x) for layer in layers], dim=-1))


def test_weights_may_be_slices_and_transposed() -> None:
    weight, x = some_layer().weight, some_rows(20)
    assert_close(Linear(weight[:, 8:24])(x[:, :16].contiguous()), x[:, :16] @ weight[:, 8:24].T)
    assert_close(Linear(weight.T)(x[:, :40].contiguous()), x[:, :40] @ weight)


@pytest.mark.parametrize("int8", INT8)
def test_holds_its_own_copy_of_the_weights(int8: bool) -> None:
    layer, x = some_layer(), some_rows(3)
    ours = made(layer, int8=int8)
    before = ours(x).clone()
    layer.weight.zero_()
    assert torch.equal(ours(x), before)


@pytest.mark.parametrize("int8", INT8)
def test_threads_share_a_layer(int8: bool) -> None:
    layer = made(some_layer(), activation="gelu", int8=int8)
    batches = [some_rows(rows, seed=rows) for rows in ROWS]
    expected = [layer(x).clone() for x in batches]

    def lane(_: int) -> list[torch.Tensor]:
        with torch.inference_mode():
            return [layer(x).clone() for _ in range(5) for x in batches]

    with ThreadPoolExecutor(4) as pool:
        for answers in pool.map(lane, range(4)):
            for answer, exact in zip(answers, expected * 5, strict=True):
                torch.testing.assert_close(answer, exact, atol=1e-5, rtol=1e-5)


@needs_int8
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_int8_is_near_float32(activation: Activation, dtype: torch.dtype) -> None:
    layer = some_layer(inputs=256, outputs=64)
    layer.weight[:32] *= 100  # one scale for all outputs would lose the others
    ours = made(layer.to(dtype), activation=activation, int8=True)
    x = some_rows(200, 256)
    exact = ACTIVATIONS[activation](layer.float()(x))
    y = ours(x.to(dtype))
    assert y.dtype == dtype
    for part in (slice(None, 32), slice(32, None)):
        error = (y[:, part].float() - exact[:, part]).norm() / exact[:, part].norm()
        assert error < 0.02
    residual = some_rows(200, 64, seed=3).to(dtype)
    if activation == "none":
        tolerance = 1e-5 if dtype == torch.float32 else 0.05
        torch.testing.assert_close(ours.plus(x.to(dtype), residual), y + residual, atol=tolerance, rtol=tolerance)


@needs_int8
def test_int8_balances_columns_of_which_some_are_much_larger() -> None:
    layer, x = some_layer(inputs=256, outputs=64), some_rows(200, 256)
    x[:, :3] *= 200
    factory = LayerFactory(layer, int8=True)
    ours = factory.encoder_linear(layer)
    ours(x)
    (error,) = factory.quantize().values()
    assert error is not None
    assert error < 0.02
    assert (ours(x) - layer(x)).norm() / layer(x).norm() < 0.02


@needs_int8
def test_int8_errs_by_0_on_average() -> None:
    layer, x = some_layer(), some_rows(32)
    factory = LayerFactory(layer, int8=True)
    ours = factory.encoder_linear(layer)
    ours(x)
    factory.quantize()
    errors = ours(x) - layer(x)
    assert errors.abs().max() > 1e-3
    assert errors.mean(0).abs().max() < 1e-5


@needs_int8
def test_int8_needs_inputs_to_be_calibrated() -> None:
    factory, layer = LayerFactory(some_layer(), int8=True), some_layer()
    ours = factory.encoder_linear(layer)
    assert list(factory.quantize().values()) == [None]
    torch.testing.assert_close(ours(some_rows(3)), layer(some_rows(3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_are_rounded_to_the_nearest_level_and_clipped(dtype: torch.dtype) -> None:
    factors = torch.rand(64, generator=torch.Generator().manual_seed(2)) * 30
    x = torch.cat([some_rows(40, 64), 1e30 * some_rows(2, 64), torch.zeros(1, 64)]).to(dtype)
    found = InputScales(factors, scale=1.0, zero_point=100).quantized(x)
    expected = (x.double() * factors + 100).round().clamp(0, 255)
    assert found.dtype == torch.uint8
    assert found.unique().numel() > 100
    assert (found.double() - expected).abs().max() <= 1  # only where the product is rounded to a half
    assert (found.double() == expected).float().mean() > 0.999


@pytest.mark.parametrize("int8", INT8)
@pytest.mark.parametrize("rows", ROWS)
def test_a_feed_forward_network_is_its_layers_one_after_the_other(rows: int, int8: bool) -> None:
    factory = LayerFactory(nn.ModuleList(), int8=int8, threads=(1,))
    expand = factory.encoder_linear(some_layer(outputs=96), activation="gelu")
    reduce = factory.encoder_linear(some_layer(inputs=96, outputs=48), residual=True)
    feed_forward(some_rows(600), expand, reduce, None)
    if int8:
        assert None not in factory.quantize().values()
    x = some_rows(rows)
    assert torch.equal(feed_forward(x, expand, reduce, None), reduce.plus(expand(x), x))


@needs_int8
def test_int8_clips_inputs_that_the_calibration_has_not_seen() -> None:
    layer = some_layer()
    ours = made(layer, int8=True)
    assert bool(ours(1e30 * some_rows(20)).isfinite().all())


@needs_int8
def test_int8_rows_do_not_depend_on_other_rows() -> None:
    ours, x = made(some_layer(), int8=True), some_rows(20)
    beside = torch.cat([x[:1], 1e4 * x[1:]])
    assert torch.equal(ours(x)[0], ours(beside)[0])
