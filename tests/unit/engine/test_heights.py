"""Heights of products at which a row's bits do not depend on the other rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gliner_bento.engine.layers.heights import Heights, cancelling, equal_heights
from gliner_bento.engine.layers.linear import Linear
from gliner_bento.engine.layers.threads import torch_threads

CANDIDATES = (16, 32, 48, 64, 128)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(0, [48]), (1, [48]), (48, [48]), (49, [64]), (128, [128]), (129, [128, 48]), (320, [128, 128, 64])],
)
def test_rows_are_covered_with_allowed_heights(rows: int, expected: list[int]) -> None:
    assert Heights((48, 64, 128)).cover(rows) == expected


def backwards(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The product, added in another order."""
    return x.flip(1) @ weight.flip(1).T


def forwards(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight.T


Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def found(product: Multiply, threads: tuple[int, ...] = (1,)) -> tuple[int, ...]:
    rows, weight = cancelling(192, 40, torch.float64)
    return equal_heights([lambda x: product(x, weight)], rows, CANDIDATES, threads)


def in_blocks(x: torch.Tensor, weight: torch.Tensor, multiply: Multiply = forwards) -> torch.Tensor:
    """A product whose kernel does not depend on the number of rows."""
    return torch.cat([multiply(part, weight) for part in x.split(16)])


def test_all_heights_of_one_kernel_are_equal() -> None:
    assert found(in_blocks) == CANDIDATES


def test_the_largest_set_of_heights_is_chosen() -> None:
    """As oneDNN on AMX: few rows have a kernel of their own."""
    assert found(lambda x, w: in_blocks(x, w, backwards if len(x) <= 32 else forwards)) == (48, 64, 128)


def test_heights_with_another_last_block_are_left_out() -> None:
    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        full = len(x) // 32 * 32
        return (
            torch.cat([in_blocks(x[:full], weight), in_blocks(x[full:], weight, backwards)])
            if full
            else in_blocks(x, weight)
        )

    assert 48 not in found(product)


@pytest.mark.parametrize(("most", "expected"), [(200, ()), (64, (128,)), (0, CANDIDATES)])
def test_heights_whose_bits_depend_on_threads_are_left_out(most: int, expected: tuple[int, ...]) -> None:
    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return in_blocks(x, weight, backwards if len(x) <= most and torch.get_num_threads() == 2 else forwards)

    assert found(product, (1, 2)) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("inputs", "outputs"), [(48, 40), (96, 1), (33, 64)])
@torch.inference_mode()
def test_a_layers_rows_do_not_depend_on_other_rows(inputs: int, outputs: int, dtype: torch.dtype) -> None:
    rows, weight = cancelling(inputs, outputs, dtype)
    layer = Linear(weight, weight.new_zeros(outputs), threads=(1,))
    assert layer.batch_invariant
    x = rows.repeat(60, 1)
    with torch_threads(1):
        expected = layer(x[:1])
        for at, count in ((0, 3), (0, 17), (22, 70), (11, 513), (33, 600)):
            assert torch.equal(layer(x[at : at + count])[:1], expected)
            assert torch.equal(layer(x[at + 1 : at + 1 + count])[10:11], layer(x[:1]) if count > 10 else expected[:0])


def test_a_number_of_threads_holds_for_a_context() -> None:
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
