"""A linear layer for inference: weights in the CPU's fastest layout, activation and residual fused.

The only module that uses oneDNN's linear kernels in floating point. A `Linear` keeps no reference to the module that it
was made from. The updates of adapters are in `updates`.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
from torch.nn import functional as F

from gliner_bento.engine.layers.heights import Heights, cancelling, equal_heights
from gliner_bento.engine.layers.int8 import InputRecord, Int8
from gliner_bento.engine.layers.lora import SlotUpdates
from gliner_bento.engine.layers.rows import SlotRows
from gliner_bento.engine.layers.threads import torch_threads

Activation = Literal["none", "relu", "gelu"]

# The number of rows that oneDNN optimizes the weight layout for. No other layout was faster from 64 to 1,024 rows.
_ROWS_HINT = 512
# Numbers of rows that a product may have. There are few, because oneDNN generates code and caches memory for each.
# Products of more than 512 rows are no faster.
_HEIGHTS = (16, 32, 48, *range(64, 513, 64))
# Twice the number of elements in the widest vectors that torch computes with, because its loops take two at a time.
_VECTOR = 64
# A layer is not quantized if its outputs on the texts of the calibration would differ by more than this share.
INT8_MAX_ERROR = 0.08


class Linear:
    """`activation(x @ weight.T + bias)`; `x` has shape (N, in), `weight` (out, in), `bias` (out) or None.

    int8: record inputs until `quantize`, and multiply in 8 bits from then on; on the CPU only.
    updates: what adapters add before the activation, to the rows of their slots.
    threads: a row's result has the same bits with each of these numbers of threads and any other rows; empty: rows may
        affect each other's rounding.
    residual: `plus` will be called, not the layer itself.
    padded: one operation computes all rows, as on a GPU.
    batch_invariant: whether `threads` is given and satisfied: the self-check found allowed heights.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        activation: Activation = "none",
        int8: bool = False,
        updates: SlotUpdates | None = None,
        threads: Sequence[int] = (),
        residual: bool = False,
        padded: bool = False,
    ) -> None:
        self._activation = activation
        self._bias = bias
        self._updates = updates
        self._int8: Int8 | None = None
        self._calibrated = (weight.detach(), InputRecord()) if int8 else None
        self._threads = tuple(threads)
        self._residual = residual
        self._reordered: torch.Tensor | None = None  # the weight in oneDNN's layout
        self._weight: torch.Tensor | None = None
        if weight.device.type == "cpu" and multiplies_in(weight.dtype) and not padded:
            self._reordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _ROWS_HINT)
        else:
            self._weight = weight.detach()
        self._heights = Heights(_HEIGHTS) if self._reordered is not None else None
        self.batch_invariant = bool(threads)
        if threads and (allowed := self._check_heights(weight, int8=False)):
            self._heights = Heights(allowed)

    def quantize(self) -> float | None:
        """Multiply in 8 bits from now on, with scales for the inputs that were recorded. Returns the relative error of
        its outputs on them; None if it is too large or no input was recorded, and the layer stays as it was."""
        assert self._calibrated is not None
        (weight, record), self._calibrated = self._calibrated, None
        if record.low is None:
            return None
        int8 = Int8(weight, self._bias, record)
        if int8.error > INT8_MAX_ERROR:
            return None
        self._int8, self._heights = int8, Heights(_HEIGHTS)
        if self._threads:
            allowed = self._check_heights(weight, int8=True)
            self._heights = Heights(allowed or _HEIGHTS)
        self._reordered = self._weight = None
        return int8.error

    def _check_heights(self, weight: torch.Tensor, *, int8: bool) -> tuple[int, ...]:
        """The heights at which rows have the same bits. Sets `batch_invariant`."""
        shape, biased = (len(weight), weight.shape[1]), self._bias is not None
        allowed = _equal_heights(shape, weight.dtype, biased, self._activation, self._residual, self._threads, int8)
        self.batch_invariant = bool(allowed)
        return allowed

    def __call__(self, x: torch.Tensor, slot_rows: SlotRows | None = None) -> torch.Tensor:
        """Shape (N, out)."""
        if self._calibrated is not None:
            self._calibrated[1].add(x)
        if slot_rows is None or self._updates is None or not self._updates.applies_to(slot_rows):
            return self._computed(x, self._activation)
        parts = []
        for rows, part_slot_rows in self._updates.parts(slot_rows, len(x)):
            if part_slot_rows is None:
                parts.append(self._computed(x[rows], self._activation))
            else:
                y = self._updates.add(self._computed(x[rows], "none"), x[rows], part_slot_rows)
                parts.append(_activated(y, self._activation))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def plus(self, x: torch.Tensor, residual: torch.Tensor, slot_rows: SlotRows | None = None) -> torch.Tensor:
        """`self(x) + residual`, for a layer without activation."""
        if self._calibrated is not None:
            self._calibrated[1].add(x)
        if self._heights is None:
            y = self._added(x, residual)
        else:
            chunks = zip(_chunks(x, self._heights), _chunks(residual, self._heights), strict=True)
            y = _joined([self._added(x_chunk, residual_chunk) for x_chunk, residual_chunk in chunks], len(x))
        if slot_rows is not None and self._updates is not None and self._updates.applies_to(slot_rows):
            self._updates.add(y[: slot_rows.total], x[: slot_rows.total], slot_rows)
        return y

    def chunks(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """`x` (N, in) in parts that take one product each, the last one filled with zeros."""
        return [x] if self._heights is None else _chunks(x, self._heights)

    def takes_one_product(self, rows: int) -> bool:
        """Whether this number of rows is not divided."""
        return self._heights is None or rows <= self._heights.allowed[-1]

    def _computed(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        """The layer without updates of adapters, in products of allowed heights."""
        if self._heights is None:
            return self._multiplied(x, activation)
        return _joined([self._multiplied(chunk, activation) for chunk in _chunks(x, self._heights)], len(x))

    def _multiplied(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        """`_computed`, in one product."""
        if self._int8 is not None:
            return self._int8(x, activation)
        if self._reordered is None:
            return _activated(self._affine(x), activation)
        algorithm = "none" if activation == "gelu" else None  # "none": exact GELU, not its tanh approximation
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._reordered, self._bias, activation, [], algorithm)
        return y

    def _added(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """`_computed(x, "none") + residual`, in one product."""
        if self._int8 is not None:
            return self._int8.plus(x, residual)
        if self._reordered is None:
            return self._affine(x) + residual
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._reordered, self._bias, "add")
        return y

    def _affine(self, x: torch.Tensor) -> torch.Tensor:
        assert self._weight is not None
        return F.linear(x, self._weight, self._bias)


def feed_forward(x: torch.Tensor, expand: Linear, reduce: Linear, slot_rows: SlotRows | None) -> torch.Tensor:
    """`reduce(expand(x)) + x`, (N, D). Without adapters, one part of the rows after the other: the expanded parts are
    large, and need not be joined."""
    if slot_rows is not None or expand.takes_one_product(len(x)):
        return reduce.plus(expand(x, slot_rows), x, slot_rows)
    return _joined([reduce.plus(expand(chunk), chunk) for chunk in expand.chunks(x)], len(x))


def _activated(y: torch.Tensor, activation: Activation) -> torch.Tensor:
    if activation == "relu":
        return F.relu(y)
    return _gelu(y) if activation == "gelu" else y


def _gelu(y: torch.Tensor) -> torch.Tensor:
    """`F.gelu`. On a CPU, pads rows to whole vectors, because torch computes an incomplete vector with other code."""
    if y.device.type != "cpu":
        return F.gelu(y)
    missing = -y.shape[1] % _VECTOR
    with torch_threads(1):
        return F.gelu(F.pad(y, (0, missing)))[:, : y.shape[1]] if missing else F.gelu(y)


def _joined(chunks: list[torch.Tensor], rows: int) -> torch.Tensor:
    """The chunks in one tensor, without the rows from `rows` on."""
    return chunks[0][:rows] if len(chunks) == 1 else torch.cat(chunks)[:rows]


def _chunks(x: torch.Tensor, heights: Heights) -> Sequence[torch.Tensor]:
    """`x` (N, D) in chunks of allowed heights, the last one filled with zeros."""
    sizes = heights.cover(len(x))
    if (missing := sum(sizes) - len(x)) > 0:
        x = F.pad(x, (0, 0, 0, missing))
    return x.split_with_sizes(sizes)


@lru_cache(maxsize=256)
def _equal_heights(
    shape: tuple[int, int],
    dtype: torch.dtype,
    biased: bool,
    activation: Activation,
    residual: bool,
    threads: tuple[int, ...],
    int8: bool,
) -> tuple[int, ...]:
    """`equal_heights` for layers with a weight of this shape (out, in). Cached, as kernels do not depend on weights."""
    rows, weight = cancelling(shape[1], shape[0], dtype)
    layer = Linear(weight, weight.new_zeros(len(weight)) if biased else None, activation=activation, int8=int8)
    if int8:  # sums of integers are exact, so what could differ is what follows them
        rows = torch.rand(rows.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        layer(rows)
        layer.quantize()
    zeros = weight.new_zeros(_HEIGHTS[-1], len(weight))

    def product(x: torch.Tensor) -> torch.Tensor:
        return layer._added(x, zeros[: len(x)]) if residual else layer._multiplied(x, activation)

    return equal_heights([product], rows, _HEIGHTS, threads)


def multiplies_in(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies in `dtype` on this CPU. False on other CPUs than x86: layouts are untested there."""
    if platform.machine() not in {"x86_64", "AMD64"} or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
