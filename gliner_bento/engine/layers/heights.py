"""Heights of matrix products, in rows, at which a row's bits do not depend on the other rows.

A CPU library chooses a kernel by the shape of a product and by the number of threads, and kernels add in different
orders. So a row may have different bits in a product of 16 rows and in one of 512, or in an incomplete last block.

    rows of a batch   ░░░░░░░░░░░░░░░░░░░░░░░     ──▶   products of allowed heights   ░░░░░░░░░░░░ ░░░░░░░░ ░░░····

A self-check when a layer is made runs the candidate heights with each number of threads. The allowed heights are the
largest set at which a row has the same bits, at any position in the product. Knows rows and products, no layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gliner_bento.engine.layers.threads import torch_threads

Product = Callable[[torch.Tensor], torch.Tensor]
"""(N, ...) -> (N, ...), with each row computed from the input row of the same index."""

# Number of different rows, which are repeated. A prime, so that a row is at another position of each block.
_PERIOD = 11
# For all numbers of threads but the first, every nth height is checked, and the others only if a checked one differs.
_SAMPLE_STEP = 4


class Heights:
    """The allowed heights, in ascending order."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self.allowed = tuple(allowed)

    def cover(self, rows: int) -> list[int]:
        """The heights of the products for `rows` rows, at least one product. Their sum is `rows` or slightly more."""
        full, rest = divmod(rows, self.allowed[-1])
        heights = [self.allowed[-1]] * full
        if rest or not full:
            heights.append(next(height for height in self.allowed if height >= rest))
        return heights


def equal_heights(
    products: Sequence[Product], rows: torch.Tensor, candidates: Sequence[int], threads: Sequence[int]
) -> tuple[int, ...]:
    """The largest set of `candidates` at which a row has the same bits in all products, with each number of threads.

    Empty if there is no such height. rows: a few different rows, which are repeated up to a height.
    """
    compared = min(len(rows), *candidates)

    def common_bits(height: int, count: int) -> bytes:
        """The bits of the rows with `count` threads; empty if they differ between positions or between products."""
        repeated = rows[torch.arange(height) % len(rows)]
        with torch_threads(count):
            distinct = {_bits(product(repeated), len(rows), compared) for product in products}
        return distinct.pop() if len(distinct) == 1 else b""

    heights_by_bits: dict[bytes, tuple[int, ...]] = {}
    for height in candidates:
        bits = common_bits(height, threads[0])
        heights_by_bits[bits] = (*heights_by_bits.get(bits, ()), height)
    heights_by_bits.pop(b"", None)
    # The largest set; of equally large ones, that with the highest height.
    expected, heights = max(heights_by_bits.items(), key=lambda item: (len(item[1]), item[1][-1]), default=(b"", ()))
    for count in threads[1:]:
        if any(common_bits(height, count) != expected for height in heights[::_SAMPLE_STEP]):
            heights = tuple(height for height in heights if common_bits(height, count) == expected)
    return heights


def _bits(y: torch.Tensor, period: int, compared: int) -> bytes:
    """The bits of the first `compared` rows; empty if `y` does not repeat itself after each `period` rows."""
    if len(y) > period and not torch.equal(y[period:], y[:-period]):
        return b""
    return bytes(y[:compared].contiguous().view(torch.uint8).numpy())


def cancelling(inputs: int, outputs: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (N, inputs) and a weight (outputs, inputs) whose product would be 0 without rounding.

    The result is rounding alone, so that another order of additions shows in nearly every element.
    """
    draw = torch.Generator().manual_seed(0)
    half = inputs // 2
    order = torch.randperm(inputs, generator=draw)
    rows, weight = torch.randn(_PERIOD, half, generator=draw), torch.randn(outputs, half, generator=draw)
    odd = inputs - 2 * half
    rows = torch.cat([rows, rows, torch.ones(_PERIOD, odd)], dim=1)[:, order]
    weight = torch.cat([weight, -weight, torch.zeros(outputs, odd)], dim=1)[:, order]
    return rows.to(dtype), weight.to(dtype)
