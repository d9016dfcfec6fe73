"""Heights of matrix products, in rows, at which a row's bits do not depend on the other rows.

A CPU library chooses a kernel by the shape of a product and by the number of threads, and kernels add in different
orders. So the same row may have other bits in a product of 16 rows than in one of 512, or in an incomplete last block.

    rows of a batch   ░░░░░░░░░░░░░░░░░░░░░░░     ──▶   products of allowed heights   ░░░░░░░░░░░░ ░░░░░░░░ ░░░····

A self-check when a layer is made runs every candidate height with every number of threads. The allowed heights are the
largest set at which a row has the same bits, at every position. Knows rows and products, no layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gliner_bento.engine.layers.threads import torch_threads

Product = Callable[[torch.Tensor], torch.Tensor]
"""(N, ...) -> (N, ...), each row computed from the row of the same number."""

# A prime, so that a repeated row is at another position of each block.
_PERIOD = 11
# With further numbers of threads, one of this many heights is checked.
_SAMPLE = 4


class Heights:
    """A set of allowed heights, in ascending order."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self.allowed = tuple(allowed)

    def cover(self, rows: int) -> list[int]:
        """Heights of products for `rows` rows, at least one; their sum is `rows` or slightly more."""
        full, rest = divmod(rows, self.allowed[-1])
        heights = [self.allowed[-1]] * full
        if rest or not full:
            heights.append(next(height for height in self.allowed if height >= rest))
        return heights


def equal_heights(
    products: Sequence[Product], rows: torch.Tensor, candidates: Sequence[int], threads: Sequence[int]
) -> tuple[int, ...]:
    """The largest set of `candidates` at which a row has the same bits in all products, with each number of threads.

    rows: a few different rows, repeated to the height. Empty if there is no such height. With further numbers of
    threads, all heights are checked only if one of a few differs.
    """
    compared = min(len(rows), *candidates)

    def bits(height: int, count: int) -> bytes:
        """The bits of a row; empty if they depend on its position, or differ between products."""
        repeated = rows.repeat(-(-height // len(rows)), *[1] * (rows.dim() - 1))[:height]
        with torch_threads(count):
            different = {_bits(product(repeated), len(rows), compared) for product in products}
        return different.pop() if len(different) == 1 else b""

    sets: dict[bytes, tuple[int, ...]] = {}
    for height in candidates:
        row_bits = bits(height, threads[0])
        sets[row_bits] = (*sets.get(row_bits, ()), height)
    sets.pop(b"", None)
    expected, heights = max(sets.items(), key=lambda one: (len(one[1]), one[1][-1]), default=(b"", ()))
    for count in threads[1:]:
        if any(bits(height, count) != expected for height in heights[::_SAMPLE]):
            heights = tuple(height for height in heights if bits(height, count) == expected)
    return heights


def _bits(y: torch.Tensor, period: int, compared: int) -> bytes:
    """The bits of the first `compared` rows; empty if equal rows of `y` differ."""
    if any(not torch.equal(y[at : at + period], y[: len(y[at : at + period])]) for at in range(period, len(y), period)):
        return b""
    return bytes(y[:compared].contiguous().view(torch.uint8).numpy())


def cancelling(inputs: int, outputs: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (N, inputs) and a weight (outputs, inputs) whose product is 0 but for rounding.

    So the result is rounding alone, and another order of additions shows in nearly every element.
    """
    draw = torch.Generator().manual_seed(0)
    half = inputs // 2
    order = torch.randperm(inputs, generator=draw)
    rows, weight = torch.randn(_PERIOD, half, generator=draw), torch.randn(outputs, half, generator=draw)
    odd = inputs - 2 * half
    rows = torch.cat([rows, rows, torch.ones(_PERIOD, odd)], dim=1)[:, order]
    weight = torch.cat([weight, -weight, torch.zeros(outputs, odd)], dim=1)[:, order]
    return rows.to(dtype), weight.to(dtype)
