"""LoRA inside a layer: the low-rank updates of many adapters in one batch, without a loop over texts.

Each adapter on the device has a slot. The updates that a layer gets from all slots are stacked:

    y[:n] += (x[:n] · A[slot]) · B[slot] + bias[slot]        n: rows with an adapter (see `rows.SlotRows`)

A GPU computes this with two products for all slots, a CPU slot by slot. The base model's rows do not change.
A slot is written only while no batch uses it. To grow, the stacks are replaced by larger copies; a running batch keeps
the stacks that it began with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.layers.finite import check_finite
from gliner_bento.engine.layers.rows import SlotRows
from gliner_bento.engine.layers.threads import torch_threads

# Grouped products need matrix dimensions that are multiples of this many elements.
_ALIGNMENT = 8

# On a CPU, the rows of one slot are multiplied in chunks of this many, in one thread: a row's bits must not depend on
# the other rows of its slot (see `heights`), and oneDNN caches memory for every shape.
_CHUNK_ROWS = 64


@dataclass(frozen=True, slots=True)
class LoraUpdate:
    """What one adapter adds to one layer: y += x @ a @ b + bias. a: (in, r). b: (r, out). bias: (out) or None."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None

    def to(self, device: torch.device) -> LoraUpdate:
        """The update on `device`."""
        bias = None if self.bias is None else self.bias.to(device)
        return LoraUpdate(self.a.to(device), self.b.to(device), bias)


@dataclass(frozen=True, slots=True)
class _Stacks:
    """The updates of all slots: a (slots, in, r), b (slots, r, out), with in, r and out aligned; bias (slots, out).

    used: slots with an update. All other slots are zero: they are free, or their adapter does not change this layer."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    used: frozenset[int]


def multiplies_groups(like: torch.Tensor) -> bool:
    """Whether torch has one kernel for grouped products; otherwise, it loops over groups and waits for the device."""
    if not like.is_cuda or like.dtype != torch.bfloat16:
        return False
    return torch.cuda.get_device_capability(like.device) >= (9, 0)


class SlotUpdates:
    """All slots' updates of one layer. Allocates memory with the first adapter that changes the layer. like: a tensor
    with the layer's device and dtype. padded: compute all slots together, as on a GPU."""

    def __init__(self, inputs: int, outputs: int, slots: int, like: torch.Tensor, *, padded: bool = False) -> None:
        self._padded = padded
        self._grouped = padded and multiplies_groups(like)
        self._inputs, self._outputs = inputs, outputs
        a, b = like.new_zeros(slots, _aligned(inputs), 0), like.new_zeros(slots, 0, _aligned(outputs))
        self._stacks = _Stacks(a, b, None, frozenset())

    @torch.inference_mode()
    def write(self, slot: int, update: LoraUpdate | None) -> None:
        """Write the update of `slot`, which no batch uses; None: the slot has no update."""
        stacks = self._stacks
        if update is None:
            if slot in stacks.used:
                for stack in (stacks.a, stacks.b, stacks.bias):
                    if stack is not None:
                        stack[slot] = 0
                self._stacks = replace(stacks, used=stacks.used - {slot})
            return
        if self._padded and not self._grouped and not bool(update.b.isfinite().all()):
            # `_add_masked` would make other slots' rows NaN (0 x infinity). A NaN bias affects only this slot's rows.
            nan = update.b.new_full((self._outputs,), torch.nan)
            update = LoraUpdate(update.a, torch.zeros_like(update.b), nan)
        stacks = self._grown(update)
        # The slot is marked as used before it is written: if writing fails, the next call clears what was written.
        self._stacks = replace(stacks, used=stacks.used | {slot})
        rank = update.a.shape[1]
        stacks.a[slot, : self._inputs, :rank] = update.a
        stacks.a[slot, :, rank:] = 0
        stacks.b[slot, :rank, : self._outputs] = update.b
        stacks.b[slot, rank:] = 0
        if stacks.bias is not None:
            stacks.bias[slot] = 0 if update.bias is None else update.bias

    def applies_to(self, slot_rows: SlotRows) -> bool:
        """Whether any of these rows has an update."""
        return not slot_rows.slots.isdisjoint(self._stacks.used)

    def parts(self, slot_rows: SlotRows, rows: int) -> Iterator[tuple[slice, SlotRows | None]]:
        """Parts of a matrix with `rows` rows: (slice, rows of each slot) if they have updates, (slice, None) if not.

        If padded, only the base model's rows are without updates; slots without an update add zeros."""
        if self._padded:
            yield slice(0, slot_rows.total), slot_rows
            if slot_rows.total < rows:
                yield slice(slot_rows.total, rows), None
            return
        used = self._stacks.used
        end = 0
        for has_update, consecutive in groupby(range(len(slot_rows.counts)), key=lambda slot: slot in used):
            slots = frozenset(consecutive)
            part = slot_rows.only(slots)
            first, end = end, end + part.total
            if not has_update and max(slots) == len(slot_rows.counts) - 1:
                end = first  # these rows are one part with the base model's rows, which follow
            elif part.total:
                yield slice(first, end), part if has_update else None
        if end < rows:
            yield slice(end, rows), None

    def add(self, y: torch.Tensor, x: torch.Tensor, slot_rows: SlotRows) -> torch.Tensor:
        """Add the updates for `x` (rows, in) to `y` (rows, out) in place. All rows have a slot, some have an update."""
        stacks = self._stacks
        if not self._padded:
            self._add_by_slot(y, x, slot_rows, stacks)
        elif self._grouped:
            self._add_grouped(y, x, slot_rows, stacks)
        else:
            self._add_masked(y, x, slot_rows, stacks)
        if stacks.bias is not None:
            y += stacks.bias[slot_rows.slot_of_row]
        return y

    def _add_masked(self, y: torch.Tensor, x: torch.Tensor, slot_rows: SlotRows, stacks: _Stacks) -> None:
        """Two products of every row with every slot's update; results for slots other than the row's are set to 0."""
        is_other_slot = slot_rows.slot_of_row != torch.arange(len(stacks.a), device=x.device)[:, None]
        inner = (x @ stacks.a[:, : self._inputs]).masked_fill_(is_other_slot[..., None], 0)
        y += (inner.transpose(0, 1).flatten(1) @ stacks.b.flatten(0, 1))[:, : self._outputs]

    def _add_grouped(self, y: torch.Tensor, x: torch.Tensor, slot_rows: SlotRows, stacks: _Stacks) -> None:
        """Two grouped products for all slots."""
        missing = stacks.a.shape[1] - x.shape[1]
        inner = F.grouped_mm(F.pad(x, (0, missing)) if missing else x.contiguous(), stacks.a, offs=slot_rows.ends)
        y += F.grouped_mm(inner, stacks.b, offs=slot_rows.ends)[:, : self._outputs]

    def _add_by_slot(self, y: torch.Tensor, x: torch.Tensor, slot_rows: SlotRows, stacks: _Stacks) -> None:
        """Slot by slot, in chunks of one size. A smaller chunk is filled up with the rows after it, whose products are
        dropped."""
        end = 0
        with torch_threads(1):
            for slot, count in enumerate(slot_rows.counts):
                first, end = end, end + count
                if slot in stacks.used:
                    for start in range(first, end, _CHUNK_ROWS):
                        rows = min(end - start, _CHUNK_ROWS)
                        chunk = x[start : start + _CHUNK_ROWS]
                        if (missing := _CHUNK_ROWS - len(chunk)) > 0:
                            chunk = F.pad(chunk, (0, 0, 0, missing))
                        product = chunk @ stacks.a[slot, : self._inputs] @ stacks.b[slot]
                        check_finite(product[:rows])  # the next layer may hide NaN, see `EncoderOutput.check_finite`
                        y[start : start + rows] += product[:rows, : self._outputs]

    def of(self, slot: int | None) -> LoraUpdate | None:
        """The update of one slot, with its rank aligned; None if the slot has none."""
        stacks = self._stacks
        if slot not in stacks.used:
            return None
        bias = None if stacks.bias is None else stacks.bias[slot]
        return LoraUpdate(stacks.a[slot, : self._inputs], stacks.b[slot, :, : self._outputs], bias)

    def _grown(self, update: LoraUpdate) -> _Stacks:
        """The stacks, or larger copies of them if the update needs more rank or a bias."""
        stacks = self._stacks
        old_rank, rank = stacks.a.shape[2], _aligned(update.a.shape[1])
        needs_bias = update.bias is not None and stacks.bias is None
        if rank <= old_rank and not needs_bias:
            return stacks
        added_rank = max(0, rank - old_rank)
        a = F.pad(stacks.a, (0, added_rank))
        b = F.pad(stacks.b, (0, 0, 0, added_rank))
        bias = stacks.a.new_zeros(len(stacks.a), self._outputs) if needs_bias else stacks.bias
        return _Stacks(a, b, bias, stacks.used)


def _aligned(size: int) -> int:
    return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


class _ThreadSlot(threading.local):
    slot: int | None = None


_current = _ThreadSlot()


@contextmanager
def on_slot(slot: int | None) -> Iterator[None]:
    """`AdaptedLinear` layers compute with the adapter in `slot` while the context lasts, in the calling thread."""
    before = _current.slot
    _current.slot = slot
    try:
        yield
    finally:
        _current.slot = before


class AdaptedLinear(nn.Module):
    """Replaces an `nn.Linear` inside a module of another library. All its inputs belong to one slot (see `on_slot`)."""

    def __init__(self, layer: nn.Linear, updates: SlotUpdates) -> None:
        super().__init__()
        self.layer = layer
        self._updates = updates

    @property
    def weight(self) -> torch.Tensor:
        """The wrapped layer's weight; modules read its dtype."""
        return self.layer.weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The wrapped layer's bias."""
        return self.layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, in) -> (…, out)."""
        y: torch.Tensor = self.layer(x)
        update = self._updates.of(_current.slot)
        if update is None:
            return y
        y = y + x @ update.a @ update.b
        return y if update.bias is None else y + update.bias
