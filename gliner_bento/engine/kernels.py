"""Operations that torch runs in several passes over memory and a compiler fuses into one.

`EAGER` needs nothing. `compiled()` is torch.compile's: on a CPU it needs a C++ compiler, it takes its time when shapes
are first seen, and it pays in bfloat16, where every pass converts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch


class Kernels(NamedTuple):
    """See the functions below for shapes."""

    disentangled_bias: Callable[[torch.Tensor, torch.Tensor, int, int], torch.Tensor]
    relu_of_sums: Callable[[torch.Tensor, torch.Tensor, int, int, int], torch.Tensor]


def disentangled_bias(c2p: torch.Tensor, p2c: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """`skewed(c2p) + skewed(p2c)^T`, both (H, rows * length, 2 * length - 1): shape (rows, H, length, length)."""
    out = c2p.new_empty(rows, len(c2p), length, length)
    return torch.add(skewed(c2p, rows, length), skewed(p2c, rows, length).transpose(2, 3), out=out)


def skewed(products: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """A view of (H, rows * length, 2 * length - 1): of a text's row i, `length` columns from length - 1 - i on."""
    columns = 2 * length - 1
    shape = (rows, len(products), length, length)
    return products.as_strided(shape, (length * columns, rows * length * columns, columns - 1, 1), length - 1)


def relu_of_sums(start: torch.Tensor, end: torch.Tensor, at: int, words: int, width: int) -> torch.Tensor:
    """`relu(start[i] + end[i + k])` for `words` words from `at` on and k < width: shape (words, width, H)."""
    size = start.shape[1]
    ends = end.as_strided((words, width, size), (size, size, 1), at * size)
    return (start[at : at + words, None] + ends).relu_()


EAGER = Kernels(disentangled_bias, relu_of_sums)


def compiled() -> Kernels:
    """The same, fused for any shape."""
    return Kernels(torch.compile(_disentangled_bias, dynamic=True), torch.compile(_relu_of_sums, dynamic=True))


# Without in-place operations: a compiler does not need them.


def _disentangled_bias(c2p: torch.Tensor, p2c: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    return (skewed(c2p, rows, length) + skewed(p2c, rows, length).transpose(2, 3)).contiguous()


def _relu_of_sums(start: torch.Tensor, end: torch.Tensor, at: int, words: int, width: int) -> torch.Tensor:
    ends = end[at : at + words + width - 1].unfold(0, width, 1).transpose(1, 2)
    return torch.relu(start[at : at + words, None] + ends)
