"""Operations that torch runs in several passes over memory and torch.compile fuses into one.

`EAGER` needs no compiler. `compiled()` needs a C++ compiler on a CPU, compiles when shapes are first seen, and is worth
it in bfloat16, where every pass converts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch


class Kernels(NamedTuple):
    """See the functions below for shapes."""

    disentangled_bias: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    relu_of_sums: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def disentangled_bias(c2p: torch.Tensor, p2c: torch.Tensor) -> torch.Tensor:
    """`skewed(c2p) + skewed(p2c)^T`, in the shapes of `skewed`: shape (texts, H, length, length)."""
    texts, heads, length, _ = c2p.shape
    return torch.add(skewed(c2p), skewed(p2c).transpose(2, 3), out=c2p.new_empty(texts, heads, length, length))


def skewed(products: torch.Tensor) -> torch.Tensor:
    """A view of (texts, H, length, 2 * length - 1 or more): of row i, `length` columns from length - 1 - i on."""
    texts, heads, length, columns = products.shape
    strides = (*products.stride()[:2], columns - 1, 1)
    return products.as_strided((texts, heads, length, length), strides, length - 1)


def relu_of_sums(start: torch.Tensor, end: torch.Tensor, width: int) -> torch.Tensor:
    """`relu(start[i] + end[i + k])` for k < width, of start (texts, words, H) and end (texts, words + width - 1, H).

    Shape (texts, words, width, H)."""
    return (start[:, :, None] + end.unfold(1, width, 1).transpose(2, 3)).relu_()


EAGER = Kernels(disentangled_bias, relu_of_sums)


def compiled() -> Kernels:
    """The operations of `EAGER`, fused for any shape."""
    return Kernels(torch.compile(disentangled_bias, dynamic=True), torch.compile(relu_of_sums, dynamic=True))
