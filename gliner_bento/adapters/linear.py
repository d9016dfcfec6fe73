"""Low-rank updates of many adapters in one batch: row by row, without a loop over requests.

An adapter on the device has a slot. Rows of a batch stand in order of their slots, those of the base model last:

    x   ┌─ slot 0 ─┬─ slot 2 ─┬── base ──┐          y[:n] += (x[:n] · A[slot]) · B[slot] + bias[slot]
        └──────────┴──────────┴──────────┘          on a GPU as two grouped products over the stacked A and B
                              n

The base model's rows are not touched. A slot is written only while no batch uses it; growing makes new stacks, so that
a batch that runs keeps the ones that it began with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import nn
from torch.nn import functional as F

# What grouped products want the rows of a matrix to be a multiple of, in elements.
_ALIGNED = 8

# More rows of one slot are multiplied in parts, on a CPU.
_MOST_ROWS = 512


@dataclass(frozen=True)
class RowSlots:
    """The slot of each text of a batch, None for the base model, in the order in which they stand; `count` slots are
    there in all."""

    of_rows: tuple[int | None, ...]
    count: int
    device: torch.device

    def owners(self, counts: Sequence[int]) -> Owners:
        """Of a matrix with `counts` rows for each text."""
        of_slots = [0] * self.count
        for slot, count in zip(self.of_rows, counts, strict=True):
            if slot is not None:
                of_slots[slot] += count
        return Owners(tuple(of_slots), self.device)

    def owner(self, row: int, count: int) -> Owners | None:
        """Of a matrix with `count` rows, all of them one text's."""
        slot = self.of_rows[row]
        if slot is None:
            return None
        return Owners(tuple(count if number == slot else 0 for number in range(self.count)), self.device)


@dataclass(frozen=True)
class Owners:
    """How many of a matrix's first rows are each slot's; rows behind them are the base model's."""

    of_slots: tuple[int, ...]
    device: torch.device

    @cached_property
    def rows(self) -> int:
        """Rows of all slots."""
        return sum(self.of_slots)

    @cached_property
    def slots(self) -> frozenset[int]:
        """Slots that own any."""
        return frozenset(slot for slot, count in enumerate(self.of_slots) if count)

    @cached_property
    def ends(self) -> torch.Tensor:
        """Shape (slots,): where each slot's rows end."""
        return torch.tensor(list(accumulate(self.of_slots)), dtype=torch.int32, device=self.device)

    @cached_property
    def of_rows(self) -> torch.Tensor:
        """Shape (rows,): the slot of each row."""
        counts = torch.tensor(self.of_slots, device=self.device)
        return torch.arange(len(counts), device=self.device).repeat_interleave(counts, output_size=self.rows)


@dataclass(frozen=True, slots=True)
class Update:
    """What one adapter adds to one layer: y += x @ a @ b + bias; a (in, r), b (r, out), bias (out) or None."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None

    def to(self, device: torch.device) -> Update:
        """The same on `device`."""
        bias = None if self.bias is None else self.bias.to(device)
        return Update(self.a.to(device), self.b.to(device), bias)

    @property
    def size_bytes(self) -> int:
        """Of all three."""
        return sum(part.nbytes for part in (self.a, self.b, self.bias) if part is not None)


@dataclass(frozen=True, slots=True)
class _Stacks:
    """a (slots, in, r), b (slots, r, out), in, r and out rounded up, bias (slots, out); slots that are free, or whose
    adapter leaves this layer alone, are zero."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    used: frozenset[int]


class Updates:
    """The updates of one layer, of all slots. Takes memory when the first adapter comes that has any."""

    def __init__(self, inputs: int, outputs: int, slots: int, like: torch.Tensor) -> None:
        self._inputs, self._outputs, self._slots = inputs, outputs, slots
        self._nothing = like.new_zeros(0)
        self._stacks: _Stacks | None = None

    @torch.inference_mode()
    def put(self, slot: int, update: Update | None) -> None:
        """From now on `slot`, which no batch uses, has this update; None: none."""
        if update is None:
            if self._stacks and slot in self._stacks.used:
                stacks = self._stacks
                for stack in (stacks.a, stacks.b, stacks.bias):
                    if stack is not None:
                        stack[slot] = 0
                self._stacks = _Stacks(stacks.a, stacks.b, stacks.bias, stacks.used - {slot})
            return
        stacks = self._grown(update)
        # First, so that what is left of a writing that fails is removed by the next one.
        self._stacks = _Stacks(stacks.a, stacks.b, stacks.bias, stacks.used | {slot})
        rank = update.a.shape[1]
        stacks.a[slot, : self._inputs, :rank], stacks.a[slot, :, rank:] = update.a, 0
        stacks.b[slot, :rank, : self._outputs], stacks.b[slot, rank:] = update.b, 0
        if stacks.bias is not None:
            stacks.bias[slot] = 0 if update.bias is None else update.bias

    def concern(self, owners: Owners) -> bool:
        """Whether any of these rows is updated."""
        return self._stacks is not None and not owners.slots.isdisjoint(self._stacks.used)

    def add(self, y: torch.Tensor, x: torch.Tensor, owners: Owners) -> torch.Tensor:
        """`y` (rows, out), in place, with what `x` (rows, in) gives; all rows are owned, and they are concerned."""
        stacks = self._stacks
        assert stacks is not None
        add = self._add_one_by_one if x.device.type == "cpu" else self._add_grouped
        add(y, x, owners, stacks)
        if stacks.bias is not None:
            y += stacks.bias[owners.of_rows]
        return y

    def _add_grouped(self, y: torch.Tensor, x: torch.Tensor, owners: Owners, stacks: _Stacks) -> None:
        """As two products for all slots."""
        missing = stacks.a.shape[1] - x.shape[1]
        inner = F.grouped_mm(F.pad(x, (0, missing)) if missing else x.contiguous(), stacks.a, offs=owners.ends)
        y += F.grouped_mm(inner, stacks.b, offs=owners.ends)[:, : self._outputs]

    def _add_one_by_one(self, y: torch.Tensor, x: torch.Tensor, owners: Owners, stacks: _Stacks) -> None:
        """On a CPU, where oneDNN keeps memory for every number of rows that it meets: each slot's rows, and as many of
        its neighbours' as make few numbers of all (what these give is dropped)."""
        end = 0
        for slot, count in enumerate(owners.of_slots):
            first, end = end, end + count
            if slot in stacks.used:
                for at in range(first, end, _MOST_ROWS):
                    rows = min(end - at, _MOST_ROWS)
                    read = x[at : at + _few_numbers(rows)]
                    if (missing := _few_numbers(rows) - len(read)) > 0:
                        read = F.pad(read, (0, 0, 0, missing))
                    product = read @ stacks.a[slot, : self._inputs] @ stacks.b[slot]
                    y[at : at + rows] += product[:rows, : self._outputs]

    def of(self, slot: int | None) -> Update | None:
        """The update of one slot, its rank rounded up."""
        stacks = self._stacks
        if stacks is None or slot not in stacks.used:
            return None
        bias = None if stacks.bias is None else stacks.bias[slot]
        return Update(stacks.a[slot, : self._inputs], stacks.b[slot, :, : self._outputs], bias)

    def _grown(self, update: Update) -> _Stacks:
        """The stacks, or larger ones with the same content if the update needs them."""
        stacks = self._stacks
        rank, biased = _rounded_up(update.a.shape[1]), update.bias is not None
        if stacks is not None and stacks.a.shape[2] >= rank and (stacks.bias is not None or not biased):
            return stacks
        used: frozenset[int] = frozenset()
        if stacks is not None:
            rank, biased, used = max(rank, stacks.a.shape[2]), biased or stacks.bias is not None, stacks.used
        a = self._nothing.new_zeros(self._slots, _rounded_up(self._inputs), rank)
        b = self._nothing.new_zeros(self._slots, rank, _rounded_up(self._outputs))
        bias = self._nothing.new_zeros(self._slots, self._outputs) if biased else None
        if stacks is not None:
            a[:, :, : stacks.a.shape[2]] = stacks.a
            b[:, : stacks.b.shape[1]] = stacks.b
            if bias is not None and stacks.bias is not None:
                bias[:] = stacks.bias
        return _Stacks(a, b, bias, used)


def _few_numbers(rows: int) -> int:
    """At least `rows`: a multiple of 16 up to 128, of 32 beyond."""
    step = 16 if rows <= 128 else 32
    return -(-rows // step) * step


def _rounded_up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


class _Current(threading.local):
    slot: int | None = None


_current = _Current()


@contextmanager
def on_slot(slot: int | None) -> Iterator[None]:
    """Within it, modules that were made adaptable compute with the adapter in `slot`, in the calling thread."""
    before, _current.slot = _current.slot, slot
    try:
        yield
    finally:
        _current.slot = before


class AdaptedLinear(nn.Module):
    """A linear layer inside a module that is not ours; everything that reaches it belongs to one slot (`on_slot`)."""

    def __init__(self, layer: nn.Linear, updates: Updates) -> None:
        super().__init__()
        self.layer = layer
        self._updates = updates

    @property
    def weight(self) -> torch.Tensor:
        """The layer's own: modules look at its type."""
        return self.layer.weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The layer's own."""
        return self.layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, in) -> (…, out)."""
        y: torch.Tensor = self.layer(x)
        update = self._updates.of(_current.slot)
        if update is None:
            return y
        y = y + x @ update.a @ update.b
        return y if update.bias is None else y + update.bias
