"""A linear layer for inference: weights in the CPU's fastest layout, activation and residual fused.

The only module that uses oneDNN's linear kernels and int8. A `Linear` keeps no reference to the module that it was made
from. The updates of adapters are in `updates`.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
from torch.nn import functional as F

from gliner_bento.engine.layers.heights import Heights, cancelling, equal_heights
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
_INT8_MAX = 127.0


class Linear:
    """`activation(x @ weight.T + bias)`; `x` has shape (N, in), `weight` (out, in), `bias` (out) or None.

    int8: multiply in 8 bits (see `Int8`); on the CPU only.
    updates: what adapters add before the activation, to the rows of their slots.
    threads: a row's result has the same bits with each of these numbers of threads and any other rows; empty: rows may
        affect each other's rounding.
    residual: `plus` will be called, not the layer itself.
    padded: one operation computes all rows, as on a GPU.
    batch_invariant: whether `threads` is given and satisfied. It is satisfied if the self-check found allowed heights,
        or if int8 is used.
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
        self._reordered: torch.Tensor | None = None  # the weight in oneDNN's layout
        self._weight: torch.Tensor | None = None
        if int8:
            self._int8 = Int8(weight)
        elif weight.device.type == "cpu" and multiplies_in(weight.dtype) and not padded:
            self._reordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _ROWS_HINT)
        else:
            self._weight = weight.detach()
        self._heights = Heights(_HEIGHTS) if self._reordered is not None else None
        self.batch_invariant = bool(threads)
        if threads and not int8:
            biased, shape = bias is not None, (len(weight), weight.shape[1])
            allowed = _equal_heights(shape, weight.dtype, biased, activation, residual, tuple(threads))
            self.batch_invariant = bool(allowed)
            if allowed:
                self._heights = Heights(allowed)

    def __call__(self, x: torch.Tensor, slot_rows: SlotRows | None = None) -> torch.Tensor:
        """Shape (N, out)."""
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
        if self._heights is None:
            y = self._added(x, residual)
        else:
            chunks = zip(_chunks(x, self._heights), _chunks(residual, self._heights), strict=True)
            y = _joined([self._added(x_chunk, residual_chunk) for x_chunk, residual_chunk in chunks], len(x))
        if slot_rows is not None and self._updates is not None and self._updates.applies_to(slot_rows):
            self._updates.add(y[: slot_rows.total], x[: slot_rows.total], slot_rows)
        return y

    def _computed(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        """The layer without updates of adapters, in products of allowed heights."""
        if self._heights is None:
            return self._multiplied(x, activation)
        return _joined([self._multiplied(chunk, activation) for chunk in _chunks(x, self._heights)], len(x))

    def _multiplied(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        """`_computed`, in one product."""
        if self._reordered is None:
            return _activated(self._affine(x), activation)
        algorithm = "none" if activation == "gelu" else None  # "none": exact GELU, not its tanh approximation
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._reordered, self._bias, activation, [], algorithm)
        return y

    def _added(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """`_computed(x, "none") + residual`, in one product."""
        if self._reordered is None:
            return self._affine(x) + residual
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._reordered, self._bias, "add")
        return y

    def _affine(self, x: torch.Tensor) -> torch.Tensor:
        if self._int8 is not None:
            y = self._int8(x)
            return (y if self._bias is None else y.add_(self._bias)).to(x.dtype)
        assert self._weight is not None
        return F.linear(x, self._weight, self._bias)


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
) -> tuple[int, ...]:
    """`equal_heights` for layers with a weight of this shape (out, in). Cached, as kernels do not depend on weights."""
    rows, weight = cancelling(shape[1], shape[0], dtype)
    layer = Linear(weight, weight.new_zeros(len(weight)) if biased else None, activation=activation)
    zeros = weight.new_zeros(_HEIGHTS[-1], len(weight))

    def product(x: torch.Tensor) -> torch.Tensor:
        return layer._added(x, zeros[: len(x)]) if residual else layer._multiplied(x, activation)

    return equal_heights([product], rows, _HEIGHTS, threads)


def multiplies_in(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies in `dtype` on this CPU. False on other CPUs than x86: layouts are untested there."""
    if platform.machine() not in {"x86_64", "AMD64"} or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


class Int8:
    """`x @ weight.T` in 8 bits: the weight has a scale per output, `x` has a scale per row.

    torch's dynamically quantized layers have one scale for all of `x`. Here each row has its own, because rows may
    belong to different texts, whose results must not depend on each other.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        rounded, scale = quantized_rows(weight.detach().float())
        self._weight, self._scale = rounded.T, scale[:, 0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (N, out), in float32."""
        rounded, scale = quantized_rows(x.float())
        return torch._int_mm(rounded, self._weight).float().mul_(scale).mul_(self._scale)


def quantized_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (N, D) as int8, and their scales (N, 1)."""
    largest = x.abs().amax(1, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny * _INT8_MAX)  # no scale of 0
    scale = largest / _INT8_MAX
    return (x / scale).round_().to(torch.int8), scale
