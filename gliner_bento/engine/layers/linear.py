"""A linear layer for inference: weights in the CPU's fastest layout, activation and residual fused.

The only module that uses oneDNN's linear kernels and int8. A `Linear` keeps no reference to the module that it was made
from; what adapters add is in its `updates`.
"""

from __future__ import annotations

import platform
from typing import Literal

import torch
from torch.nn import functional as F

from gliner_bento.engine.layers.lora import SlotUpdates
from gliner_bento.engine.layers.packing import bucket_size
from gliner_bento.engine.layers.rows import SlotRows

Activation = Literal["none", "relu", "gelu"]

# The number of rows that oneDNN optimizes the weight layout for: measured best, or equal, from 64 to 1,024 rows.
_ROWS_HINT = 512
# Maximum rows of one product: in oneDNN, more rows are no faster, and take more cached memory.
_MAX_CHUNK_ROWS = 512
_INT8 = 127.0


class Linear:
    """`activation(x @ weight.T + bias)`; `x` has shape (N, in), `weight` (out, in), `bias` (out) or None.

    int8: multiply in 8 bits (see `Int8`); on the CPU only.
    updates: what adapters add before the activation, to the rows of their slots.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        activation: Activation = "none",
        int8: bool = False,
        updates: SlotUpdates | None = None,
    ) -> None:
        self._activation = activation
        self._bias = bias
        self._updates = updates
        self._quantized: Int8 | None = None
        self._packed: torch.Tensor | None = None
        self._weight: torch.Tensor | None = None
        if int8:
            self._quantized = Int8(weight)
        elif weight.device.type == "cpu" and multiplies_in(weight.dtype):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _ROWS_HINT)
        else:
            self._weight = weight.detach()

    def __call__(self, x: torch.Tensor, slot_rows: SlotRows | None = None) -> torch.Tensor:
        """Shape (N, out)."""
        if slot_rows is None or self._updates is None or not self._updates.applies_to(slot_rows):
            return self._computed(x, self._activation)
        adapted, rest = x[: slot_rows.total], x[slot_rows.total :]
        y = self._updates.add(self._computed(adapted, "none"), adapted, slot_rows)
        y = _activated(y, self._activation)
        return torch.cat([y, self._computed(rest, self._activation)]) if len(rest) else y

    def plus(self, x: torch.Tensor, residual: torch.Tensor, slot_rows: SlotRows | None = None) -> torch.Tensor:
        """`self(x) + residual`, for a layer without activation."""
        if self._packed is None:
            y = self._plain(x) + residual
        else:
            y = _joined([self._added(*chunk) for chunk in zip(_chunks(x), _chunks(residual), strict=True)], len(x))
        if slot_rows is not None and self._updates is not None and self._updates.applies_to(slot_rows):
            self._updates.add(y[: slot_rows.total], x[: slot_rows.total], slot_rows)
        return y

    def _computed(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        if self._packed is None:
            return _activated(self._plain(x), activation)
        return _joined([self._multiplied(chunk, activation) for chunk in _chunks(x)], len(x))

    def _multiplied(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        algorithm = "none" if activation == "gelu" else None
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, activation, [], algorithm)
        return y

    def _added(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._packed, self._bias, "add")
        return y

    def _plain(self, x: torch.Tensor) -> torch.Tensor:
        if self._quantized is not None:
            y = self._quantized(x)
            return (y if self._bias is None else y.add_(self._bias)).to(x.dtype)
        assert self._weight is not None
        return F.linear(x, self._weight, self._bias)


def _activated(y: torch.Tensor, activation: Activation) -> torch.Tensor:
    if activation == "relu":
        return F.relu(y)
    return F.gelu(y) if activation == "gelu" else y


def _joined(chunks: list[torch.Tensor], rows: int) -> torch.Tensor:
    """The first `rows` rows of all chunks."""
    return chunks[0][:rows] if len(chunks) == 1 else torch.cat(chunks)[:rows]


def _chunks(x: torch.Tensor) -> list[torch.Tensor]:
    """`x` (N, D) in chunks of at most `_MAX_CHUNK_ROWS` rows, in bucketed shapes (see `Layout.bucketed`)."""
    size = bucket_size(len(x))
    if size > len(x):
        x = F.pad(x, (0, 0, 0, size - len(x)))
    return [x[at : at + _MAX_CHUNK_ROWS] for at in range(0, size, _MAX_CHUNK_ROWS)]


def multiplies_in(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies in `dtype` on this CPU. x86 only: its layouts are untested elsewhere."""
    if platform.machine() not in {"x86_64", "AMD64"} or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


class Int8:
    """`x @ weight.T` in 8 bits: weights with a scale per output, inputs with a scale per row.

    torch's dynamically quantized layers have one scale per input. Here each row has its own, because rows of one input
    may belong to different texts, whose results must not depend on each other.
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
    scale = x.abs().amax(1, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny * _INT8) / _INT8
    return (x / scale).round_().to(torch.int8), scale
