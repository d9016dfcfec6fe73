"""Operations for which torch makes several passes over memory, and which torch.compile fuses into one pass.

`EAGER` needs no compiler. `compiled()` needs a C++ compiler on a CPU, and compiles at the first call. It pays off in
bfloat16, where every pass converts its data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch


class Kernels(NamedTuple):
    """The operations, as functions. See the functions of the same names for shapes."""

    disentangled_bias: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    relu_of_sums: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def disentangled_bias(c2p: torch.Tensor, p2c: torch.Tensor) -> torch.Tensor:
    """`skewed(c2p) + skewed(p2c)^T`, contiguous, with the shapes of `skewed`. ^T swaps the last two dimensions."""
    texts, heads, length, _ = c2p.shape
    return torch.add(skewed(c2p), skewed(p2c).transpose(2, 3), out=c2p.new_empty(texts, heads, length, length))


def skewed(products: torch.Tensor) -> torch.Tensor:
    """A view (texts, heads, length, length) of products (texts, heads, length, 2 * length - 1 or more): in row i, the
    columns from length - 1 - i on."""
    texts, heads, length, columns = products.shape
    strides = (*products.stride()[:2], columns - 1, 1)
    return products.as_strided((texts, heads, length, length), strides, length - 1)


def relu_of_sums(start: torch.Tensor, end: torch.Tensor, width: int) -> torch.Tensor:
    """`relu(start[i] + end[i + k])` for each word i and each k < width: (texts, words, width, D).

    start: (texts, words, D). end: (texts, words + width - 1, D)."""
    return (start[:, :, None] + end.unfold(1, width, 1).transpose(2, 3)).relu_()


EAGER = Kernels(disentangled_bias, relu_of_sums)


def compiled() -> Kernels:
    """The operations of `EAGER`, fused, for any shape."""
    return Kernels(torch.compile(disentangled_bias, dynamic=True), torch.compile(relu_of_sums, dynamic=True))
